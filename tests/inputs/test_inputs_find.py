"""Model files in the manner of public repositories: what is found runs in plain eager PyTorch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from searching import problems_in

from mase_server.protocol.request import TraceOptions, TraceRequest
from mase_server.tracing.inputs.spec import inputs_at
from mase_server.tracing.inputs.text import format_inputs
from mase_server.tracing.models.find import find_models
from mase_server.tracing.models.found import Found, Hooks, call_arguments, plain_hooks
from mase_server.tracing.recording.shadow import Shadows

CORPUS = Path(__file__).parent / "corpus"

#: What a person would expect to see: file -> {model: (where the inputs are from, the inputs)}.
EXPECTED = {
    "actor_critic": {"ActorCritic": ("search", "state: f32[B=2, 8]")},
    "audio_conv": {"M5": ("search", "x: f32[B=2, 1, L=1024]")},
    "band_conv": {
        "BandNet": ("search", "x: f32[B=2, L=103]"),
        "SoftPooling1d": ("search", "x: f32[B=2, T=16, 64]"),
    },
    "boxes_and_frames": {
        "ShiftBoxes": ("search", "anchors: f32[B=2, T=16, 4]; regression: f32[B, T, 4]"),
        "FrameNet": ("search", "x: f32[B=2, 16, H=84, W=84]"),
    },
    "commented": {"Odd": ("comment", "signal: f32[B=2, T=16, 6]; flag: 3")},
    "dcgan_main": {
        "Generator": ("main", "z: f32[B=6, 16, 1, 1]"),
        "Discriminator": ("main", "x: f32[B=6, 3, H=16, W=16] uniform"),
    },
    "dict_batch": {
        "ClickModel": (
            "search",
            "batch: {user_id: i64[B=2] < 300, item_id: i64[B] < 500, dense: f32[B, 13]}",
        )
    },
    "dict_config": {"Mixer": ("search", "x: f32[B=2, 32]")},
    "diffusion_unet": {"Denoiser": ("search", "x: f32[B=2, 3, H=32, W=32]; t: i64[B] < 10")},
    "feature_scale": {"Backbone": ("search", "image: f32[B=2, 3, H=32, W=32]")},
    "gcn": {"GCN": ("main", "x: f32[N=9, 12]; edge_index: i64[2, E=30] < N")},
    "gpt_config": {"GPT": ("search", "idx: i64[B=2, T=16] < 211")},
    "gru_time_first": {"Forecaster": ("search", "series: f32[T=16, B=2, 7]")},
    "lenet_bare": {"LeNet5": ("search", "x: f32[B=2, 3, H=32, W=32]")},
    "lip_sync": {"LipSync": ("search", "sound: f32[B=2, 1, 80, 16]; face: f32[B, 6, H=96, W=96]")},
    "lstm_packed_bare": {"Tagger": ("search", "tokens: i64[B=2, T=16] < 1000; lengths: i64[B] lengths(T)")},
    "lstm_packed_main": {"Tagger": ("main", "tokens: i64[B=3, T=9] < 50; lengths: i64[B] lengths(T)")},
    "masked_transformer_main": {"Decoder": ("main", "src: i64[T=11, B=4] < 90; src_mask: f32[T, T] causal")},
    "mnist_mlp_main": {"Net": ("main", "x: f32[B=64, 1, H=28, W=28]")},
    "module_level": {"classifier": ("search", "input: f32[B=2, 1, 28, 28]")},
    "module_level_call": {"Regressor": ("main", "x: f32[B=100, 6]")},
    "moe": {"MoE": ("search", "x: f32[B=2, T=16, 64]")},
    "needs_download": {"Student": ("search", "x: f32[B=2, 1, H=32, W=32]")},
    "pair_input": {"Siamese": ("search", "pair: (f32[B=2, 20], f32[B, 20])")},
    "resnet_builders": {"ResNet": ("search", "x: f32[B=2, 3, H=32, W=32]")},
    "seq2seq": {"Seq2Seq": ("search", "src: i64[B=2, T=16] < 1000; trg: i64[B, T] < 1000")},
    "stacked_decoder": {
        "StackedCells": ("search", "feed: f32[B=2, 32]; hidden: f32[2, B, 64]"),
        "WordModel": (
            "search",
            "input: i64[B=2, T=16]; hidden: [(f32[1, T, 128], f32[1, T, 128]), (f32[1, T, 128], f32[1, T, 128])]",
        ),
    },
    "step_vocoder": {
        "Vocoder": ("search", "audio: f32[B=2, L=8192]; diffusion_step: i64[B]; spectrogram: f32[B, H=80, W=32]")
    },
    "typed_graph": {
        "TypedMessages": (
            "search",
            "x: f32[N=8, 12]; edge_attr: f32[E=20, 6]; edge_index: i64[2, E] < N; kwargs: {edge_labels: i64[E] ones}",
        )
    },
    "unet": {"UNet": ("search", "x: f32[B=2, 3, H=32, W=32]")},
    "vae_function_main": {"VAE": ("main", "x: f32[B=5, 1, H=28, W=28] uniform")},
    "volume_losses": {
        "OverlapLoss": ("search", "scores: f32[B=2, 3, D=16, H=112, W=112]; labels: f32[B, 3, D, H, W]"),
        "BalancedCrossEntropy": ("search", "scores: f32[B=2, 3, D=16, H=112, W=112]; target: i64[B, D, H, W]"),
    },
    "video_3d": {"C3D": ("search", "clip: f32[B=2, 3, D=16, H=112, W=112]")},
    "vit_bare": {"ViT": ("search", "img: f32[B=2, 3, H=32, W=32]")},
    "vit_main": {"ViT": ("main", "img: f32[B=3, 3, H=64, W=64]")},
}


@pytest.fixture(autouse=True)
def _main_module():
    saved, threads = sys.modules["__main__"], torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    assert sys.modules["__main__"] is saved
    torch.set_num_threads(threads)


def request_for(path, scratch, **options):
    return TraceRequest(str(path), str(path.parent), "", 1, TraceOptions(**options), scratch=str(scratch))


def results(path, scratch, **options):
    return list(find_models(request_for(path, scratch, **options), path.read_text(), plain_hooks(Shadows())))


def test_every_file_of_the_corpus_has_an_expectation():
    assert sorted(path.stem for path in CORPUS.glob("*.py")) == sorted(EXPECTED)


# Random tokens may miss the largest one, and with it the range: only the order of magnitude can be told.
def without_ranges(text):
    return re.sub(r" < \d+", "", text)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_shown_is_what_a_person_expects_and_runs_in_eager(name, tmp_path):
    found = results(CORPUS / f"{name}.py", tmp_path)
    assert list(problems_in(found)) == []
    shown = {each.name: (each.inputs_from, without_ranges(format_inputs(each.spec))) for each in found}
    assert shown == {model: (source, without_ranges(text)) for model, (source, text) in EXPECTED[name].items()}
    for each in found:
        model = (each.construct or (lambda each=each: each.model))()
        if each.construct is None:
            model.to_empty(device="cpu")
        args, kwargs = call_arguments(model, inputs_at(each.spec))
        with torch.no_grad():
            model.eval()(*args, **kwargs)


CALLED_BY_ITSELF = """
from transformers import BertConfig, BertModel

sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, vocab_size=100)
model = BertModel(BertConfig(**sizes))
small, large = nn.Sequential(nn.Linear(8, 4)), nn.Sequential(nn.Linear(8, 5))
spare = nn.Sequential(nn.Linear(7, 4))
model(torch.randint(0, 100, (3, 9)))
small(torch.randn(5, 8))
large(torch.randn(6, 8))
"""


def test_a_model_in_a_variable_that_the_file_calls_is_shown_once_with_what_it_is_given(tmp_path):
    path = written(tmp_path, CALLED_BY_ITSELF)
    shown = {each.name: (each.inputs_from, format_inputs(each.spec)) for each in results(path, tmp_path)}
    assert without_ranges(str(shown)) == str(
        {
            "BertModel": ("main", "input_ids: i64[B=3, T=9]"),
            "small": ("main", "input: f32[B=5, 8]"),
            "large": ("main", "input: f32[B=6, 8]"),
            "spare": ("search", "input: f32[B=2, 7]"),
        }
    )
    # A comment or a request may name the variable, and asks for other inputs.
    asked = written(
        tmp_path, CALLED_BY_ITSELF.replace("small,", "# mase: small: input: f32[B=3, 8]\nsmall,"), "asked.py"
    )
    shown = {each.name: (each.inputs_from, format_inputs(each.spec)) for each in results(asked, tmp_path)}
    assert shown["small"] == ("comment", "input: f32[B=3, 8]")
    assert one(path, tmp_path, model="model").inputs_from == "search"


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith("_main")])
def test_the_inputs_of_a_run_are_those_that_plain_python_sees(name, tmp_path):
    """Ground truth: the file in a fresh interpreter, with a forward hook that prints the first shapes of each model."""
    code = f"""
import runpy, sys, torch
seen = {{}}
def hook(module, args):
    if type(module).__module__ == "__main__" and type(module).__name__ not in seen:
        seen[type(module).__name__] = [list(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        sys.stderr.write(repr((type(module).__name__, seen[type(module).__name__])) + "\\n")
torch.nn.modules.module.register_module_forward_pre_hook(hook)
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(lambda *a: sys.exit(0))
sys.argv = [{str(CORPUS / name)!r} + ".py"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    truth = dict(eval(line) for line in ran.stderr.splitlines() if line.startswith("('"))
    for each in results(CORPUS / f"{name}.py", tmp_path):
        assert [list(value.shape) for value in each.inputs.values()] == truth[each.name]


def written(folder, text, name="models.py"):
    path = folder / name
    path.write_text("import torch\nfrom torch import nn\n\n" + text)
    return path


NET = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(width, 2)

    def forward(self, x):
        return self.layer(x)
"""


def one(path, scratch, **options):
    (found,) = results(path, scratch, **options)
    return found


def test_an_option_beats_a_comment_and_a_comment_beats_a_setting(tmp_path):
    path = written(tmp_path, "# mase: x: f32[3, 4]" + NET)
    assert one(path, tmp_path).inputs_from == "comment"
    option = one(path, tmp_path, inputs=("x: f32[5, 4]",), inputs_from="option")
    assert (option.inputs_from, tuple(option.args[0].shape)) == ("option", (5, 4))
    setting = one(path, tmp_path, inputs=("x: f32[5, 4]",), inputs_from="settings")
    assert (setting.inputs_from, tuple(setting.args[0].shape)) == ("comment", (3, 4))


def test_a_comment_beats_the_files_own_call(tmp_path):
    found = one(written(tmp_path, "# mase: x: f32[7, 4]" + NET + "\nNet()(torch.randn(2, 4))\n"), tmp_path)
    assert (found.inputs_from, tuple(found.args[0].shape), found.recorded) == ("comment", (7, 4), False)


def test_constructor_arguments_of_a_comment_are_used(tmp_path):
    found = one(written(tmp_path, "# mase: Net(width=9)" + NET), tmp_path)
    assert (found.arguments, found.arguments_from) == ({"width": 9}, "comment")
    assert found.args[0].shape[-1] == 9


def test_constructor_arguments_of_an_option_are_used_and_called_so(tmp_path):
    found = one(written(tmp_path, NET), tmp_path, arguments={"width": "9"}, inputs_from="option")
    assert (found.arguments, found.arguments_from) == ({"width": 9}, "option")


def test_the_file_does_not_run_as_main_when_that_is_turned_off(tmp_path):
    body = NET + "\nif __name__ == '__main__':\n    Net()(torch.randn(3, 4))\n"
    assert one(written(tmp_path, body), tmp_path).inputs_from == "main"
    assert one(written(tmp_path, body), tmp_path, run_main=False).inputs_from == "search"


def test_only_the_model_that_was_asked_for_is_shown(tmp_path):
    path = written(tmp_path, NET + NET.replace("Net", "Other"))
    assert [each.name for each in results(path, tmp_path)] == ["Net", "Other"]
    assert one(path, tmp_path, model="Other").name == "Other"
    problem = one(path, tmp_path, model="Nothing")
    assert (problem.code, problem.message) == ("no-model", "No model 'Nothing' in this file; it has Net, Other.")


def test_a_skipped_class_is_left_out(tmp_path):
    assert results(written(tmp_path, "# mase: skip" + NET), tmp_path) == []


PROBLEMS = {
    "bad-comment": ("# mase: x: f99[1]" + NET, 4, "unknown element type 'f99'"),
    "syntax-error": ("class Net(nn.Module:\n    pass\n", 4, "SyntaxError"),
    "missing-package": ("import a_package_that_nobody_has\n" + NET, 4, "No module named 'a_package_that_nobody_has'"),
    "import-error": ("x = 1 / 0\n" + NET, 4, "ZeroDivisionError: division by zero"),
    "no-model": ("x = 1\n", 1, "No class of this file extends torch.nn.Module"),
    "name-error": (NET.replace("nn.Linear(width, 2)", "undefined_name"), 8, "The name `undefined_name` is not defined"),
    "no-inputs": (NET.replace("self.layer(x)", "open(x)"), 5, "`# mase: x: TYPE[SIZE, ...]`"),
    "no-arguments": (NET.replace("width=4", "secret: str"), 5, "`# mase: Net(secret=...)`"),
}


@pytest.mark.parametrize("code", PROBLEMS)
def test_what_cannot_be_shown_is_one_problem_at_its_place_with_the_next_step(code, tmp_path):
    text, line, message = PROBLEMS[code]
    problems = list(problems_in(results(written(tmp_path, text), tmp_path)))
    assert [(each.code, each.line) for each in problems] == [(code, line)]
    assert message in problems[0].message


@pytest.mark.parametrize("decorator", ["@str", "@property"])
def test_a_forward_that_is_no_function_is_told(decorator, tmp_path):
    body = NET.replace("    def forward", f"    {decorator}\n    def forward")
    (problem,) = results(written(tmp_path, body), tmp_path)
    kind = decorator.removeprefix("@")
    assert problem.message.startswith(f"The forward of Net is no function: it is of type {kind}, and running it")


@pytest.mark.parametrize(
    "body", ["Net.forward = 3\nnet = Net()", "net = Net()\nNet.forward = 3", "net = Net()\nnet.forward = 3"]
)
def test_a_forward_that_the_program_replaces_by_no_function_is_told(body, tmp_path):
    first, *_ = results(written(tmp_path, f"{NET}\n{body}\n"), tmp_path)
    assert first.problem.message.startswith("The forward of Net is no function: it is of type int.")
    assert (first.problem.severity, first.problem.line) == ("error", 5)


def test_a_call_of_a_forward_that_is_no_function_fails_as_in_python(tmp_path):
    found = one(written(tmp_path, f"{NET}\nnet = Net()\nNet.forward = 3\nnet(torch.zeros(2, 4))\n"), tmp_path)
    assert found.inputs_from == "main"
    with pytest.raises(TypeError, match="'int' object is not callable"):
        found.model(*found.args)


@pytest.mark.parametrize("run", ["", "net(torch.zeros(2, 4))", "net.forward(torch.zeros(2, 4))"])
def test_a_forward_that_the_program_replaces_is_the_one_that_is_shown(run, tmp_path):
    replaced = "old, net = Net.forward, Net()\nNet.forward = lambda self, x: old(self, x).repeat(1, 5)"
    found = one(written(tmp_path, f"{NET}\n{replaced}\n{run}\n"), tmp_path)
    assert found.model(*found.args).shape == (2, 10)


#: A part whose forward is no function, handed what the outer forward gets, or what it made.
OUTER = """

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.parts = nn.Embedding(10, 4), nn.ModuleList([Net(), Net()])

    def forward(self, tokens, mask):
        return self.parts[0](self.embed(tokens), mask) if HANDED else self.parts[0](tokens)
"""


@pytest.mark.parametrize("handed", ["True", "False"])
@pytest.mark.parametrize("decorator", ["@str", "@property"])
def test_a_part_whose_forward_is_no_function_does_not_end_the_search(decorator, handed, tmp_path):
    body = NET.replace("    def forward", f"    {decorator}\n    def forward") + OUTER.replace("HANDED", handed)
    assert {getattr(each, "name", "") for each in results(written(tmp_path, body), tmp_path)} == {"Outer"}


def test_a_constructor_that_fails_in_the_run_is_an_error_at_its_line(tmp_path):
    body = NET.replace("nn.Linear(width, 2)", "nn.Linear(width, 'two')") + "\nif __name__ == '__main__':\n    Net()\n"
    problems = list(problems_in(results(written(tmp_path, body), tmp_path)))
    assert {(each.code, each.line, each.severity) for each in problems} == {("constructor-error", 8, "error")}


def test_a_model_that_fails_is_given_to_the_caller_with_its_own_error(tmp_path):
    path = written(tmp_path, NET + "\nNet()(torch.randn(2, 5))\n")
    shadows, errors = Shadows(), []
    plain = plain_hooks(shadows)

    def on_call(model, args, kwargs):
        try:
            return plain.on_call(model, args, kwargs)
        except RuntimeError as error:
            errors.append(str(error))
            raise

    hooks = Hooks(shadows, on_call, plain.attempt)
    (found,) = find_models(request_for(path, tmp_path), path.read_text(), hooks)
    assert isinstance(found, Found)
    assert found.recorded
    assert len(errors) == 1


def test_a_file_in_a_package_may_import_relatively(tmp_path):
    package = tmp_path / "kit_of_find_test"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts" / "__init__.py").write_text("")
    (package / "blocks.py").write_text("from torch import nn\nclass Mlp(nn.Linear):\n    pass\n")
    path = written(package / "parts", "from ..blocks import Mlp\n" + NET.replace("nn.Linear", "Mlp"))
    try:
        assert one(path, tmp_path).name == "Net"
    finally:
        for name in [name for name in sys.modules if name.startswith("kit_of_find_test")]:
            del sys.modules[name]


def test_a_found_model_can_be_made_again_for_real(tmp_path):
    found = one(written(tmp_path, NET + "\nNet(width=6)(torch.randn(2, 6))\n"), tmp_path)
    real = found.construct()
    assert real.layer.weight.shape == (2, 6)
    assert real.layer.weight.device.type == "cpu"
    assert found.model.layer.weight.is_meta


def test_a_search_says_why_the_files_own_run_gave_no_inputs(tmp_path):
    found = one(CORPUS / "needs_download.py", tmp_path)
    assert found.found.startswith("found by search: x = image [B, 1, H, W], first used by net")
    assert "its own run ended before any model was called: URLError" in found.found
    assert "refused" in found.found
    assert not (CORPUS / "weights.pt").exists()


TESTED = (
    NET
    + """
def small():
    return Net(6)


def large():
    return Net(60)


def test():
    net = {maker}
    y = net(torch.randn(3, {width}))
    {more}
"""
)


@pytest.mark.parametrize("guard", ["", "\nif __name__ == '__main__':\n    print(1)\n"], ids=["bare", "guarded"])
def test_a_test_that_the_file_does_not_call_gives_the_model_and_its_inputs(tmp_path, guard):
    text = TESTED.format(maker="large()", width=60, more="print(y.size())") + guard
    path = written(tmp_path, text)
    found, line = one(path, tmp_path), path.read_text().split("\n").index("def test():") + 1
    assert (found.inputs_from, found.found) == ("main", f"the inputs of test(), line {line}")
    assert format_inputs(found.spec) == "x: f32[B=3, 60]"


PART = """
from absent_parts import Mixer

{comment}
class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * self.weight


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = Norm(8), Mixer(8).width + 1

    def forward(self, x):
        return self.mixer(self.norm(x))
"""


def test_a_comment_of_a_part_is_followed_where_no_whole_is_shown(tmp_path):
    path = written(tmp_path, PART.format(comment="# mase: Norm(dim=32); x: f32[2, 5, 32]"))
    [found] = [each for each in results(path, tmp_path) if isinstance(each, Found)]
    assert (found.name, found.inputs_from, format_inputs(found.spec)) == ("Norm", "comment", "x: f32[B=2, T=5, 32]")
    assert not found.rest


def test_a_test_that_fails_takes_nothing_from_the_file(tmp_path):
    text = TESTED.format(maker="small().missing()", width=6, more="pass")
    found = one(written(tmp_path, text), tmp_path)
    assert (found.inputs_from, format_inputs(found.spec)) == ("search", "x: f32[B=2, 6]")
    text = TESTED.format(maker="small()", width=6, more="assert y.shape == (0, 0)")
    assert one(written(tmp_path, text), tmp_path).inputs_from == "main"


def test_a_test_of_nothing_in_the_file_and_one_with_parameters_are_not_called(tmp_path):
    text = TESTED.format(maker="small()", width=6, more="pass")
    given = text.replace("def test()", "def test(width)")
    assert one(written(tmp_path, given), tmp_path).inputs_from == "search"
    other = NET + "\n\ndef test():\n    raise SystemExit('never')\n"
    assert one(written(tmp_path, other), tmp_path).inputs_from == "search"


def test_a_forward_that_can_never_succeed_is_shown_with_the_likeliest_inputs(tmp_path):
    found = one(written(tmp_path, NET.replace("self.layer(x)", "self.layer(x).not_there")), tmp_path)
    assert found.inputs_from == "search"
    assert format_inputs(found.spec) == "x: f32[B=2, 4]"
    assert "the forward fails with them" in found.found


def test_several_models_are_all_found_and_parts_are_not_shown_alone(tmp_path):
    parts = NET.replace("Net", "Part")
    whole = NET.replace("Net", "Whole").replace("nn.Linear(width, 2)", "Part(width)")
    assert [each.name for each in results(written(tmp_path, parts + whole + NET), tmp_path)] == ["Whole", "Net"]


def test_hugging_face_models_are_called_as_their_configuration_says(tmp_path):
    pytest.importorskip("transformers")
    path = tmp_path / "encoder.py"
    path.write_text(
        "from transformers import BertConfig, BertModel\n\n"
        "def build():\n"
        "    config = BertConfig(vocab_size=77, hidden_size=24, num_hidden_layers=1, num_attention_heads=2)\n"
        "    return BertModel(config)\n"
    )
    found = one(path, tmp_path)
    assert (found.name, found.inputs_from, format_inputs(found.spec)) == (
        "BertModel",
        "search",
        "input_ids: i64[B=2, T=16] < 77",
    )
    with torch.no_grad():
        assert found.construct().eval()(**inputs_at(found.spec)).last_hidden_state.shape == (2, 16, 24)
