"""Memory, FLOPs and time as they are told without running, beside a real run of the same model.

Peak memory is that of PyTorch's allocator: events of its profiler on the CPU, its statistics on a GPU. FLOPs are those
of `torch.utils.flop_counter`. Times are told from the rates of the device, which are measured on the CPU by
microbenchmarks beforehand, and beside them the median of real runs, layer by layer. --fit: real runs at two batches
that follow each other give a memory into which the first fits and the second does not; told is the batch that fits.
With --saves, an editor saves the GPT example so often: seconds until its hints are there while no costs are shown, and
until its costs are told once a device is picked.
Usage: python benchmarks/costs.py [--saves 20] [NAME | hf:TYPE | big:TYPE ...] [--device cuda --rates H100] [--fit]
    [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import io
import json
import os
import runpy
import shutil
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")

import torch
from editor import Editor
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from mase_server.daemon.devices import Device, list_devices
from mase_server.ir.run_costs import Plan, Run, RunRecorder, find_fits, write_costs
from mase_server.worker.transforms.device_costs import measure_processor
from tests.ir.real_runs import make_step, measure_allocations

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("mlp", "lenet", "gpt", "resnet", "vit", "vae", "lstm_classifier", "transformer_encoder", "llama", "multimodal",
         "bert_hf", "llama_hf")  # fmt: skip
#: Examples without a program, and what makes one of them.
PROGRAMS = {
    "lenet": "model = LeNet(); model(torch.randn(8, 1, 28, 28))",
    "llama": "model = Llama(LlamaArgs()); model(torch.randint(0, 32, (2, 24)))",
}
HUGGING_FACE = """bert roberta distilbert albert electra deberta-v2 mpnet mobilebert gpt2 gpt_neo opt bloom llama
    mistral qwen2 gemma phi falcon t5 bart vit deit swin convnext resnet regnet mobilenet_v2 wav2vec2"""
#: Runs of which the median is taken.
RUNS = 9
#: The batch that shall be told to fit.
BATCH = 5


class Called(Exception):
    """The first call of a model, which is all that is wanted of its program."""


def find_example(name: str) -> tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]:
    """The model that an example calls first, and with what."""
    found: list[Any] = []
    calls = nn.Module.__call__

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        found[:] = module, args, kwargs
        raise Called

    nn.Module.__call__ = call  # type: ignore[method-assign, assignment]
    try:
        with contextlib.suppress(Called), contextlib.redirect_stdout(io.StringIO()):
            names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
            exec(f"import torch\n{PROGRAMS[name]}", names)
    finally:
        nn.Module.__call__ = calls  # type: ignore[method-assign]
    return found[0], found[1], found[2]


def build(name: str) -> tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]:
    """A model and a call of it."""
    torch.manual_seed(0)
    if name.startswith("big:"):
        return build_big(name.removeprefix("big:"))
    if not name.startswith("hf:"):
        return find_example(name)
    from small_models import MaseGraph
    from small_models import build as make

    kind = name.removeprefix("hf:")
    return make(kind), (), dict(MaseGraph(make(kind)).arguments)


def build_big(kind: str) -> tuple[nn.Module, tuple[Any, ...], Mapping[str, Any]]:
    """A model of transformers at its usual size, with inputs that fill a GPU."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(kind)
    model = AutoModel.from_config(config)
    if hasattr(config, "vocab_size"):
        return model, (), {"input_ids": torch.randint(0, config.vocab_size, (16, 512))}
    return model, (), {"pixel_values": torch.randn(32, 3, 224, 224)}


# What is told without running.


def tell_costs(name: str, train: str, gpu: bool) -> Any:
    """The recording, and what is written of it."""
    model, args, kwargs = build(name)
    plan, folder = Plan(train, gpu=gpu), str(EXAMPLES)
    try:
        return write_costs(Run(model, lambda sizes: (args, kwargs), plan, folder))
    except Exception:  # noqa: BLE001 - as the product does
        model, args, kwargs = build(name)
        return write_costs(Run(model, lambda sizes: (args, kwargs), plan, folder, values=True))


# What is measured.


def measure(name: str, train: str, device: str) -> dict[str, Any]:
    """The peak of a real run, its FLOPs, and the seconds of it and of each layer."""
    model, args, kwargs = build(name)
    model.to(device).train(bool(train))
    args, kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), (args, dict(kwargs)))
    step, state = make_step(model, args, kwargs, train, foreach=device == "cuda")
    base = RunRecorder(model, "", gpu=device == "cuda").keep(
        (list(model.parameters()), list(model.buffers()), args, kwargs, state), "held"
    )
    found: dict[str, Any] = {"peak": base + _measure_peak(step, device)}
    with FlopCounterMode(display=False) as counter:
        step()
    found["flops"] = counter.get_total_flops()
    step()
    found["seconds"] = statistics.median(_time(step, device) for _ in range(RUNS))
    if not train:
        found["layers"] = _time_layers(model, step, device)
    return found


def _measure_peak(step: Callable[[], None], device: str) -> int:
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    return measure_allocations(step)


def _time(step: Callable[[], None], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _time_layers(model: nn.Module, step: Callable[[], None], device: str) -> dict[str, float]:
    """The median seconds of each module without parts."""
    spent: dict[str, list[float]] = {}
    begun: dict[str, float] = {}

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def before(path: str) -> Callable[..., None]:
        return lambda *told: begun.__setitem__(path, now())

    def after(path: str) -> Callable[..., None]:
        return lambda *told: spent.setdefault(path, []).append(now() - begun[path])

    hooks = []
    for path, module in model.named_modules():
        if path and not list(module.children()):
            hooks += [module.register_forward_pre_hook(before(path)), module.register_forward_hook(after(path))]
    for _ in range(RUNS):
        step()
    for hook in hooks:
        hook.remove()
    return {path: statistics.median(each) * len(each) / RUNS for path, each in spent.items()}


# The batch that fits.


def repeat_batch(value: Any, batch: int, size: int) -> Any:
    """Inputs with another batch: their first dimension, where it is the batch, is made of the rows they have."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] != batch:
            return tensor
        return tensor[torch.arange(size) % batch].contiguous()

    return tree_map_only(torch.Tensor, change, value)


def find_batch(args: Any, kwargs: Any) -> int:
    """The first dimension of the first input."""
    return next(each.shape[0] for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor) and each.dim())


def measure_batch(name: str, train: str, size: int) -> int:
    """The peak of a real run at a batch."""
    model, args, kwargs = build(name)
    args, kwargs = repeat_batch((args, dict(kwargs)), find_batch(args, kwargs), size)
    model.train(bool(train))
    step, state = make_step(model, args, kwargs, train)
    base = RunRecorder(model, "").keep((list(model.parameters()), list(model.buffers()), args, kwargs, state), "held")
    return base + _measure_peak(step, "cpu")


def tell_batch(name: str, train: str, memory: int) -> int:
    """The largest batch that is told to fit into some bytes."""
    model, args, kwargs = build(name)
    batch = find_batch(args, kwargs)

    def feed(sizes: Mapping[str, int] | None) -> Any:
        return repeat_batch((args, dict(kwargs)), batch, (sizes or {"B": batch})["B"])

    run = Run(model, feed, Plan(train, memory=memory), str(EXAMPLES), {"B": batch})
    run.record()  # where fake tensors do not do, nothing is searched
    return find_fits(run)["B"]


def compare_fits(names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each model and mode."""
    for name in names:
        for train in ("", "adamw"):
            low, high = (in_fork(partial(measure_batch, name, train, BATCH + more)) for more in (0, 1))
            row: dict[str, Any] = {"name": name, "train": train}
            wrong = next((each["error"] for each in (low, high) if isinstance(each, dict)), "")
            if wrong or low >= high:
                yield row | {"error": wrong or f"holds no more at {BATCH + 1} than at {BATCH}"}
                continue
            told = in_fork(partial(tell_batch, name, train, (low + high) // 2))
            yield row | ({"error": told["error"]} if isinstance(told, dict) else {"told": told})


# Comparing.


def rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Spearman's, with the mean rank for equal values."""

    def ranks(values: list[float]) -> list[float]:
        ordered = sorted(values)
        return [(ordered.index(each) + len(ordered) - ordered[::-1].index(each) - 1) / 2 for each in values]

    return statistics.correlation(ranks([a for a, _ in pairs]), ranks([b for _, b in pairs]))


def in_fork(work: Callable[[], Any]) -> Any:
    """The result of a function in a process of its own, which leaves no memory behind."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.close(reading)
        try:
            made: Any = work()
        except BaseException:  # noqa: BLE001 - it becomes the answer
            made = {"error": traceback.format_exc().strip().splitlines()[-1][:200]}
        with os.fdopen(writing, "w") as pipe:
            json.dump(made, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text or '{"error": "the process ended"}')


def estimate(told: Mapping[str, Any], device: Device) -> tuple[float, dict[str, float]]:
    """Seconds, in all and by module."""
    layers: dict[str, float] = {}
    total = 0.0
    for _, operator, dtype, _, _, module, flops, reads, writes, count in told["calls"]:
        seconds = count * device.estimate(operator, dtype, flops, reads + writes)[0]
        total += seconds
        path = told["modules"][module]
        layers[path] = layers.get(path, 0.0) + seconds
    return total, layers


def compare(names: list[str], device: str, rates: Device) -> Iterator[dict[str, Any]]:
    """A row for each model and mode."""
    for name in names:
        for train in ("", "adamw"):
            row: dict[str, Any] = {"name": name, "train": train}
            told = in_fork(lambda name=name, train=train: tell_costs(name, train, device == "cuda"))
            real = in_fork(lambda name=name, train=train: measure(name, train, device))
            if "error" in told or "error" in real:
                yield row | {"error": told.get("error") or real.get("error")}
                continue
            seconds, layers = estimate(told, rates)
            row |= {
                "told": told["facts"]["peak_bytes"],
                "peak": real["peak"],
                "seconds": seconds,
                "real": real["seconds"],
            }
            row |= {"flops": sum(call[6] * call[9] for call in told["calls"]), "counted": real["flops"]}
            pairs = [(layers[path], each) for path, each in real.get("layers", {}).items() if layers.get(path)]
            row["rank"] = rank_correlation(pairs) if len({a for a, _ in pairs}) > 1 and len(pairs) > 4 else None
            yield row


async def time_saves(count: int) -> dict[str, list[float]]:
    """Seconds after saves of the GPT example: until fresh hints with no costs shown, until fresh costs of a run.

    The first save with costs is left out: its process imports what it needs, the later ones have it.
    """
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(EXAMPLES / "gpt.py", Path(folder).resolve()))
        os.environ.update(XDG_CACHE_HOME=f"{folder}/cache", XDG_STATE_HOME=f"{folder}/state")
        source = path.read_text("utf-8")
        async with Editor(path.parent) as editor:
            editor.open(path)
            await editor.settled(path)
            number = 0
            for mode, train in (("hints, no costs shown", None), ("inference", ""), ("training, AdamW", "adamw")):
                if train is not None:
                    await editor.execute(path, "mase.pickDevice", device="L4", train=train)
                seconds = []
                for _ in range(count + 1):
                    number += 1
                    text = source.replace("n_embd=128", f"n_embd={128 + 4 * number}")
                    if train is None:
                        seconds.append(await editor.save_and_settle(path, text, lambda label: bool(label)))
                    else:
                        start = time.perf_counter()
                        editor.save(path, text)
                        await _wait_for_costs(editor, path, text, train)
                        seconds.append(time.perf_counter() - start)
                    await asyncio.sleep(_LOOK)
                found[mode] = seconds[1:]
    return found


#: Seconds in which somebody looks at a change; the sizes that fit are searched meanwhile.
_LOOK = 8.0


async def _wait_for_costs(editor: Editor, path: Path, text: str, train: str) -> None:
    digest = hashlib.sha256(text.encode()).hexdigest()
    while True:
        table = await editor.client.protocol.send_request_async("mase/costTable", {"path": str(path)})
        if table.sha256 == digest and table.run is not None and not table.older and table.run.optimizer == train:
            return
        await asyncio.sleep(0.005)


def tell_saves(count: int) -> None:
    """Time saves, print."""
    print(f"{count} saves of gpt.py each, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for mode, seconds in asyncio.run(time_saves(count)).items():
        median, worst = 1e3 * statistics.median(seconds), 1e3 * max(seconds)
        print(f"{mode:24} median {median:5.0f} ms, most {worst:5.0f} ms")


def main() -> None:
    """Compare, print, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rates", default="CPU", help="the device of the table whose rates are taken")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--fit", action="store_true", help="compare the batch that fits")
    parser.add_argument("--saves", type=int, default=0, metavar="N", help="time saves of the GPT example instead")
    options = parser.parse_args()
    if options.saves:
        return tell_saves(options.saves)
    warnings.simplefilter("ignore")
    names = options.names or [*NAMES, *(f"hf:{each}" for each in HUGGING_FACE.split())]
    if options.fit:
        found = []
        for row in compare_fits(names):
            found.append(row)
            what = row.get("error") or f"B <= {row['told']}, really {BATCH}"
            print(f"{row['name']:20} {row['train'] or 'inference':10} {what}", flush=True)
        good = [row for row in found if "told" in row]
        print(f"the batch that fits: {sum(row['told'] == BATCH for row in good)} of {len(good)} equal")
        return
    measured = options.rates == "CPU"
    rates = Device.measured(in_fork(measure_processor)) if measured else list_devices()[options.rates]
    print(f"estimates for {rates.title}, runs on {options.device}, torch {torch.__version__}")
    rows = []
    for row in compare(names, options.device, rates):
        rows.append(row)
        mode = row["train"] or "inference"
        if "error" in row:
            print(f"{row['name']:20} {mode:10} {row['error']}", flush=True)
            continue
        off, pace = row["told"] / row["peak"] - 1, row["seconds"] / row["real"]
        rank = "" if row["rank"] is None else f"rank {row['rank']:.2f}"
        flops = "flops equal" if row["flops"] == row["counted"] else f"flops {row['flops']} / {row['counted']}"
        print(
            f"{row['name']:20} {mode:10} {row['told'] / 1e6:9.2f} / {row['peak'] / 1e6:9.2f} MB {100 * off:+6.1f} %  "
            f"{1e3 * row['seconds']:8.2f} / {1e3 * row['real']:8.2f} ms {pace:5.2f}  {rank}  {flops}", flush=True,
        )  # fmt: skip
    good = [row for row in rows if "error" not in row]
    offs = [abs(row["told"] / row["peak"] - 1) for row in good]
    ranks = [row["rank"] for row in good if row["name"] in NAMES and row["rank"] is not None]
    paces = [row["seconds"] / row["real"] for row in good if row["name"] in NAMES and not row["train"]]
    near, nearly = (sum(off <= most for off in offs) for most in (0.05, 0.1))
    print(f"{len(good)} of {len(rows)} runs; memory within 5 %: {near}, within 10 %: {nearly}")
    print(f"FLOPs equal: {sum(row['flops'] == row['counted'] for row in good)}")
    if ranks:
        print(f"layers' rank correlation: median {statistics.median(ranks):.2f}, least {min(ranks):.2f}")
    if paces:
        print(f"estimate / measured: median {statistics.median(paces):.2f}")
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
