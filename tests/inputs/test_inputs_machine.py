"""Programs for another machine: with GPUs, several processes, a keyboard, a command line, files that are not here."""

import traceback

import pytest
import torch

from tests.inputs.test_inputs_missing import BODY, HEAD, bound, told, traced

MAIN = "\nif __name__ == '__main__':\n"
CALLS = "    net(torch.randn(3, 4))\n"
PROGRAMS = {
    "a GPU by number": "    torch.cuda.set_device(0)\n    net = Net().to(0)\n    net(torch.randn(3, 4).to(0))\n",
    "a GPU by name": "    net = Net().to('cuda:0')\n    net(torch.randn(3, 4, device='cuda'))\n",
    "a GPU by method": "    net = Net().cuda(0)\n    net(torch.randn(3, 4).pin_memory().cuda(non_blocking=True))\n",
    "a GPU's clock": (
        "    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n    start.record()\n"
        "    net = Net()\n    end.record()\n    torch.cuda.synchronize()\n    assert start.elapsed_time(end) > 0\n"
        + CALLS
    ),
    "a GPU's memory": (
        "    torch.cuda.reset_peak_memory_stats()\n    free, total = torch.cuda.mem_get_info()\n"
        "    assert torch.cuda.get_device_properties(0).total_memory > 2**30\n    net = Net()\n" + CALLS
    ),
    "a GPU's streams": (
        "    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):\n        net = Net()\n    " + CALLS
    ),
    "a GPU's graph": "    net = Net()\n    graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(graph):\n    "
    + CALLS,
    "half precision on a GPU": (
        "    net, scaler = Net().cuda(), torch.amp.GradScaler('cuda')\n    with torch.autocast('cuda'):\n    " + CALLS
    ),
    "a GPU's random numbers": (
        "    torch.cuda.manual_seed_all(3)\n    torch.cuda.set_rng_state(torch.cuda.get_rng_state())\n    net = Net()\n"
        + CALLS
    ),
    "ranges for a profiler": "    torch.cuda.nvtx.range_push('a')\n    torch.cuda.profiler.start()\n    net = Net()\n"
    + CALLS,
    "a Mac's GPU": "    torch.mps.empty_cache()\n    net = Net().to('mps')\n" + CALLS,
    "several processes": (
        "    import os\n    import torch.distributed as dist\n    dist.init_process_group('nccl')\n"
        "    rank = int(os.environ['LOCAL_RANK'])\n    assert os.environ.get('LOCAL_RANK', 'none') == 'none'\n"
        "    net = nn.parallel.DistributedDataParallel(Net().to(rank), device_ids=[rank])\n" + CALLS
    ),
    "processes that it starts": (
        "    import torch.multiprocessing as mp\n    def work(rank, width):\n        net = Net(width).to(rank)\n    "
        + CALLS
        + "    mp.spawn(work, args=(4,), nprocs=torch.cuda.device_count())\n"
    ),
    "a question": "    name = input('Which? ')\n    net = Net()\n" + CALLS,
    "weights that are not here": (
        "    net = Net()\n    state = torch.load('runs/best.pt', map_location='cuda')\n"
        "    net.load_state_dict(state['model'])\n" + CALLS
    ),
    "a file with a name that is no identifier": "    net = Net()\n" + CALLS,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_for_another_machine_calls_its_model(tmp_path, name):
    file = "3d-net.v2.py" if "identifier" in name else "net.py"
    payload = traced(tmp_path, {file: HEAD + BODY + MAIN + PROGRAMS[name]}, file)
    (model,) = payload["models"]
    assert (model["inputs_from"], bound(payload)["h"], payload["problems"]) == ("main", [3, 5], [])


def test_seeding_keeps_no_stack_for_a_gpu_that_is_not_there(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(traceback, "format_stack", lambda *args: kept.append(args) or [])
    program = "    torch.manual_seed(3)\n    torch.cuda.manual_seed(3)\n    net = Net()\n" + CALLS
    payload = traced(tmp_path, {"net.py": HEAD + BODY + MAIN + program}, "net.py")
    assert payload["models"][0]["inputs_from"] == "main", payload["problems"]
    assert not kept


def test_a_global_that_main_sets_before_it_fails_is_there_for_the_models(tmp_path):
    text = f"""{HEAD}
from absent_package import load_dataset
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 5).to(device)
    def forward(self, x):
        h = self.fc(x.to(device))
        return h
def main():
    global device, net
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = Net()
    load_dataset("stories")
if __name__ == "__main__":
    main()
"""
    payload = traced(tmp_path, {"net.py": text})
    assert [model["name"] for model in payload["models"]] == ["Net"]
    assert [problem["code"] for problem in payload["problems"]] == ["missing-package"]
    assert bound(payload)["h"][-1] == 5


def test_a_default_type_of_a_gpu_is_its_element_type(tmp_path):
    text = HEAD + "torch.set_default_tensor_type('torch.cuda.DoubleTensor')\n" + BODY + "Net()(torch.randn(3, 4))\n"
    try:
        payload = traced(tmp_path, {"net.py": text})
    finally:
        torch.set_default_dtype(torch.float32)
    assert payload["models"][0]["inputs"]["x"][0] == "f64"


def test_a_tensor_has_the_legacy_type_of_its_elements(tmp_path):
    """torchvision's ToTensor divides bytes by 255 if they are an instance of torch.ByteTensor."""
    text = f"""{HEAD}{BODY}
pixels = torch.zeros(3, 4, dtype=torch.uint8)
assert isinstance(pixels, torch.ByteTensor) and not isinstance(pixels, torch.FloatTensor)
assert not isinstance(torch.zeros(3).tolist(), torch.FloatTensor) and isinstance(torch.IntTensor(2), torch.IntTensor)
assert int(torch.tensor([3.5]).type(torch.LongTensor)) == 3 and pixels.type() == "torch.ByteTensor"
assert torch.FloatTensor(torch.zeros(2, 3)).shape == (2, 3)
Net()(pixels.type(torch.FloatTensor))
"""
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], payload["problems"]) == ([3, 5], [])


def test_a_parameter_that_no_module_registers_has_the_type_of_real_ones(tmp_path):
    """A part in a plain list keeps its parameters on meta, and losses compare their types with that of the data."""
    text = f"""{HEAD}
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor([0.25, 0.75]), requires_grad=False)
        assert torch.nn.Linear(2, 2).weight.type() == "torch.FloatTensor"
    def forward(self, x):
        if self.alpha.type() != x.data.type():
            self.alpha = self.alpha.type_as(x.data)
        return x * self.alpha
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = [Weighted()]
    def forward(self, x):
        y = self.parts[0](x)
        return y
Net()(torch.randn(3, 2))
"""
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["y"], payload["problems"]) == ([3, 2], [])


@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(data, 32, shuffle=True)",
        "DataLoader(random_split(data, [50_000, 10_000])[0], 32)",
        "DataLoader(data, 32, sampler=SubsetRandomSampler(range(50_000)))",
        "DataLoader(data, 32, sampler=WeightedRandomSampler(torch.rand(60_000), 60_000))",
    ],
)
def test_a_large_data_set_may_be_shuffled(tmp_path, loader):
    text = f"""{HEAD}{BODY}
from torch.utils.data import *
data = TensorDataset(torch.randn(60_000, 4))
for (x,) in {loader}:
    out = Net()(x)
    break
"""
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["out"], payload["problems"]) == ([32, 5], [])


#: A torchvision whose data sets are not there, as the real one behaves.
VISION = {
    "__init__.py": "from . import datasets\n",
    "datasets.py": """
import os, urllib.request
class VisionDataset:
    def __init__(self, root, transform=None, target_transform=None):
        self.root, self.transform, self.target_transform = root, transform, target_transform
class MNIST(VisionDataset):
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform, target_transform)
        self.train = train
        if download:
            self.download()
        if not os.path.exists(root):
            raise RuntimeError("Dataset not found. You can use download=True to download it")
    @property
    def class_to_idx(self):
        return {name: index for index, name in enumerate(self.classes)}
    def download(self):
        fetch("http://mnist.invalid/train.gz")
class Flowers(VisionDataset):
    def __init__(self, root):
        fetch("http://flowers.invalid/flowers.tgz")
def fetch(*addresses):
    errors = []
    for address in addresses:
        try:
            urllib.request.urlopen(address)
        except OSError as error:
            errors.append(error)
    raise RuntimeError(f"Error downloading {addresses[0]}")
""",
}


@pytest.fixture
def vision(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages" / "torchvision"
    folder.mkdir(parents=True)
    for name, text in VISION.items():
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))


@pytest.mark.parametrize("options", ["download=True", "train=False"])
def test_pictures_take_the_place_of_a_data_set_that_is_not_here(tmp_path, vision, options):
    text = f"""{HEAD}{BODY}
import numpy
from torchvision import datasets

def load():
    def flat(image):
        return torch.from_numpy(numpy.array(image)).reshape(-1, 4)[0] / 255.0
    return datasets.MNIST("data", {options}, transform=flat)

def main():
    data = load()
    for images, labels in torch.utils.data.DataLoader(data, 16, shuffle=True):
        out = Net()(images)
        count = torch.zeros(len(data), len(data.class_to_idx))
        break

main()
"""
    payload = traced(tmp_path, {"net.py": text})
    shapes = bound(payload)
    count = 60_000 if "download" in options else 10_000
    assert (shapes["images"], shapes["labels"], shapes["out"]) == ([16, 4], [16], [16, 5])
    assert shapes["count"] == [count, 10]
    (problem,) = payload["problems"]
    line = text[: text.index("datasets.MNIST")].count("\n") + 1
    assert (problem["severity"], problem["code"], problem["line"]) == ("information", "missing-resource", line)
    assert "data set MNIST is not on this disk" in problem["message"]


def test_a_download_that_a_library_gives_up_after_a_refusal_is_no_mistake_of_the_program(tmp_path, vision):
    text = f"{HEAD}{BODY}\nfrom torchvision.datasets import Flowers\ndata = Flowers('data')\n"
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], told(payload)) == ([2, 5], [("warning", "refused", text.count("\n"))])


PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"
REQUIRED = {
    "an option": "parser.add_argument('--data', required=True)\nargs = parser.parse_args()\nassert args.data\n",
    "a positional": "parser.add_argument('data', nargs='+')\nargs = parser.parse_args()\nassert len(args.data) == 1\n",
    "a rank": "parser.add_argument('--rank', type=int, required=True)\nassert parser.parse_args().rank == 0\n",
    "a choice": (
        "parser.add_argument('--mode', choices=['b', 'a'], required=True)\nassert parser.parse_args().mode == 'b'\n"
    ),
    "a command": (
        "command = parser.add_subparsers(dest='command', required=True).add_parser('train')\n"
        "command.add_argument('--seed', type=int, required=True)\nassert parser.parse_args().command == 'train'\n"
    ),
    "one of a group": (
        "group = parser.add_mutually_exclusive_group(required=True)\ngroup.add_argument('--path')\n"
        "group.add_argument('--url')\nassert parser.parse_args().path\n"
    ),
    "an own type": (
        "def flag(text):\n    assert text in ('True', 'False')\n    return text == 'True'\n"
        "parser.add_argument('--on', type=flag, required=True)\nassert parser.parse_args().on is True\n"
    ),
}


@pytest.mark.parametrize("text", REQUIRED.values(), ids=REQUIRED)
def test_a_parser_that_requires_arguments_gets_some(tmp_path, text):
    payload = traced(tmp_path, {"net.py": HEAD + PARSER + text + BODY + "Net()(torch.randn(3, 4))\n"})
    (model,) = payload["models"]
    assert (bound(payload)["h"], payload["problems"]) == ([3, 5], [])
    assert model["found"].startswith("the inputs of the file's own run, with the guessed command-line arguments `")


def test_a_number_that_a_parser_requires_is_no_size(tmp_path):
    text = HEAD + PARSER + "parser.add_argument('--width', type=int, required=True)\nargs = parser.parse_args()\n"
    payload = traced(tmp_path, {"net.py": text + BODY + MAIN + "    Net(args.width)(torch.randn(3, args.width))\n"})
    assert (payload["models"][0]["inputs_from"], bound(payload)["h"], told(payload)) == ("search", [2, 5], [])


def test_a_file_that_refuses_the_guessed_arguments_has_no_mistake(tmp_path):
    text = HEAD + PARSER + "parser.add_argument('--data', required=True)\nargs = parser.parse_args()\n"
    check = "if args.data != 'mnist':\n    raise ValueError('no such data set')\n"
    payload = traced(tmp_path, {"net.py": text + check + BODY})
    assert bound(payload)["h"][1] == 5
    (problem,) = payload["problems"]
    assert (problem["severity"], problem["code"]) == ("warning", "import-error")
    assert problem["message"].endswith("Its command-line arguments `--data data` are guessed.")


def test_defaults_of_a_parser_are_kept(tmp_path):
    text = HEAD + PARSER + "parser.add_argument('--width', type=int, default=6)\nargs = parser.parse_args()\n"
    payload = traced(tmp_path, {"net.py": text + BODY + "Net(args.width)(torch.randn(3, args.width))\n"})
    model = payload["models"][0]
    assert (model["found"], model["inputs"]["x"][1]) == ("the inputs of the file's own run", [3, 6])


def test_code_for_inference_alone_is_shown(tmp_path):
    """A cache that is written in inference mode, and read again in the next step."""
    body = BODY.replace(
        "        self.layer", "        self.register_buffer('cache', torch.zeros(8, 4))\n        self.layer"
    )
    body = body.replace("    def forward(self, x):\n", "    @torch.inference_mode()\n    def forward(self, x):\n")
    body = body.replace(
        "        h =", "        self.cache[: x.shape[0]] = x\n        m = torch.ones(5).cumsum(0).mul_(2)\n        h ="
    )
    steps = "    net = Net()\n    for _ in range(2):\n        net(torch.randn(3, 4))\n"
    payload = traced(tmp_path, {"net.py": HEAD + body + MAIN + steps})
    assert (bound(payload)["h"], payload["problems"]) == ([3, 5], [])


def test_a_program_of_several_machines_is_not_waited_for(tmp_path):
    text = f"{HEAD}import os\nfrom torch.distributed import rpc\n{BODY}{MAIN}"
    text += "    os.environ |= dict(MASTER_ADDR='localhost', MASTER_PORT='29511')\n"
    text += "    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=5)\n"
    text += "    rpc.init_rpc('agent', rank=0, world_size=3, rpc_backend_options=options)\n"
    text += "    Net()(torch.ones(7, 4))\n"
    payload = traced(tmp_path, {"net.py": text})
    assert (bound(payload)["h"], payload["problems"]) == ([7, 5], [])


#: What a model for several processes or for a GPU asks for, in its constructor or in its forward.
ASKED = {
    "its rank": "w = dist.get_rank() + dist.get_world_size() - 1",
    "a group that was asked for": "dist.init_process_group('nccl'); assert dist.is_initialized(); w = dist.get_rank()",
    "a group by name": "dist.init_process_group('nccl'); assert dist.get_world_size(dist.group.WORLD) == 1; w = 0",
    "a group of its own": "g = dist.new_group([0]); w = dist.get_rank(g) + g.size() - 1",
    "the inner module": (
        "from torch.distributed import distributed_c10d as c10d; g = c10d._get_default_group(); w = g.rank()"
    ),
    "a mesh": (
        "from torch.distributed.device_mesh import init_device_mesh; "
        "m = init_device_mesh('cuda', (1, 1), mesh_dim_names=('dp', 'tp')); "
        "w = m['tp'].get_local_rank() + m.size() - 1 + m.get_group('tp').size() - 1"
    ),
    "a collective": "t = torch.ones(3); dist.all_reduce(t); dist.broadcast(t, 0); dist.barrier(); w = 0",
    "a collective that is awaited": "t = torch.ones(3); dist.all_reduce(t, async_op=True).wait(); w = 0",
    "a gathering": (
        "t = torch.ones(2, 3); o = [torch.empty(2, 3)]; dist.all_gather(o, t); "
        "p = torch.empty(2, 3); dist.all_gather_into_tensor(p, t); dist.reduce_scatter_tensor(p, t); "
        "dist.all_to_all_single(p, t); w = o[0].shape[0] - 2"
    ),
    "objects": "o = [None]; dist.all_gather_object(o, 3); w = o[0] - 3",
    "a functional collective": (
        "import torch.distributed.nn.functional as D; t = D.all_reduce(torch.ones(3)); w = len(D.all_gather(t)) - 1"
    ),
    "the device": "d = torch.cuda.current_device(); w = torch.zeros(2).cuda().to(d).shape[0] - 2",
    "what the device can": (
        "w = torch.cuda.get_device_capability()[0] - torch.cuda.get_device_properties('cuda').major; "
        "torch.cuda.is_bf16_supported(); torch.cuda.get_device_properties(0).gcnArchName"
    ),
    "tensors of the device": "w = torch.cuda.FloatTensor(2, 3).shape[0] - 2",
    "the accelerator": "w = torch.accelerator.current_device_index(); torch.accelerator.synchronize()",
}


@pytest.mark.parametrize("where", ["__init__", "forward"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_model_for_several_processes_has_a_group_of_one_and_a_device(tmp_path, asked, where):
    indent = "\n        "
    lines = indent.join(ASKED[asked].split("; "))
    before = "        self.layer = nn.Linear(width, 5)\n" if where == "__init__" else "        h = self.layer(x)\n"
    after = before.replace("width, 5", "width + w, 5").replace("(x)", "(x) + w")
    body = BODY.replace(before, f"        {lines}\n{after}")
    payload = traced(tmp_path, {"net.py": f"{HEAD}import torch.distributed as dist\n{body}"})
    assert (bound(payload)["h"], payload["problems"]) == ([2, 5], [])
    assert payload["models"][0]["inputs"]["x"][1] == [2, 4]
    assert not torch.distributed.is_initialized()
