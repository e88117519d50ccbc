# ruff: noqa: E501 - the tables below read best with one case a line
"""Real eager failures, and whether their diagnostics say what really happened, where, and mend it rightly."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mase_server.ops.types import TensorType
from mase_server.protocol.snapshot import Problem
from mase_server.tracing.diagnosis.failure import Failure
from mase_server.tracing.diagnosis.problems import Context, explain_error
from mase_server.tracing.importing.importer import WorkspaceImporter
from mase_server.tracing.recording.shadow import MetaMode, Shadows, ValueDependentError

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


class Watch(TorchFunctionMode):
    """Remembers the torch call that raised, as the recorder does, but running eagerly on real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Failure | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            if self.failure is None or self.failure.error is not error:
                with torch._C.DisableTorchFunction():
                    self.failure = Failure.of(error, func, args, kwargs or {}, "")
            raise


# Frames of the product's own recorder are hidden from the person; so are those of this stand-in.
Watch.__torch_function__.__code__ = Watch.__torch_function__.__code__.replace(co_filename="<watch>")


@dataclass
class Workbench:
    """A file of the workspace and how to make it fail."""

    folder: Path

    @property
    def path(self) -> str:
        return str(self.folder / "model.py")

    def write(self, text: str, name: str = "model.py", header: str = HEADER) -> str:
        (self.folder / name).write_text(header + text)
        return header + text

    def load(self) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "model"}
        exec(
            WorkspaceImporter([str(self.folder)], None, lambda *_: lambda _i, v: v).prepare(self.path, namespace),
            namespace,
        )
        return namespace

    def forward(self, text: str, *inputs: torch.Tensor, **context: Any) -> Problem:
        self.write(text)
        model = self.load()["Net"]()
        watch = Watch()
        with pytest.raises(Exception) as caught, watch:  # noqa: PT011 - each case raises something else
            model(*inputs)
        failure = watch.failure if watch.failure and watch.failure.error is caught.value else None
        leaf, path = innermost_leaf(model, caught.value)
        if failure is not None and leaf is not None:
            failure = failure.inside(leaf, path)
        return explain_error(caught.value, failure, Context(self.path, (str(self.folder),), model="Net", **context))

    def raising(self, phase: str, text: str, header: str = HEADER) -> Problem:
        self.write(text, header=header)
        context = Context(self.path, (str(self.folder),), phase=phase, model="Net", where=(1, 2, 3, 4))
        with pytest.raises(BaseException) as caught:  # noqa: PT011, PT012
            namespace = self.load()
            namespace["Net"]()
        return explain_error(caught.value, None, context)

    def text_at(self, problem: Problem) -> str:
        lines = Path(problem.file).read_text().split("\n")
        assert problem.line == problem.end_line
        return lines[problem.line - 1][problem.column : problem.end_column]

    def mended(self, problem: Problem) -> str:
        """The file after the only quick fix."""
        (fix,) = problem.fixes
        (edit,) = fix["edits"]
        lines = Path(edit["file"]).read_text().split("\n")
        line = lines[edit["line"] - 1]
        lines[edit["line"] - 1] = line[: edit["column"]] + edit["new_text"] + line[edit["end_column"] :]
        return "\n".join(lines)


def innermost_leaf(model: nn.Module, error: BaseException) -> tuple[nn.Module | None, str]:
    """The torch.nn module in whose forward it was raised."""
    names = {id(module): name for name, module in model.named_modules()}
    found: tuple[nn.Module | None, str] = (None, "")
    traceback = error.__traceback__
    while traceback is not None:
        receiver = traceback.tb_frame.f_locals.get("self")
        if (
            isinstance(receiver, nn.Module)
            and type(receiver).__module__.startswith("torch.nn")
            and not isinstance(receiver, nn.Sequential)
        ):
            found = (receiver, names[id(receiver)])
        traceback = traceback.tb_next
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def net(init: str, forward: str, parameters: str = "x") -> str:
    return (
        f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, {parameters}):\n        {forward}\n"
    )


def made_at(text: str, expression: str, path: str) -> tuple[str, int, int, int, int]:
    """Where an expression stands, found by searching the text."""
    before = text.partition(expression)[0]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2].encode())
    return path, line, line, column, column + len(expression.encode())


ones = torch.ones
ids = torch.zeros(2, 3, dtype=torch.int64)

#: forward expression, inputs, what the message must say, code, the text that is underlined.
CASES = {
    "bmm": ("return torch.bmm(x, y)", (ones(2, 3, 4), ones(2, 5, 6)), ["`x` f32[2, 3, 4]", "`y` f32[2, 5, 6]", "is 4", "is 5"]),
    "matmul_operator": ("return x @ y", (ones(3, 4), ones(5, 6)), ["`x` f32[3, 4] is 4", "`y` f32[5, 6] is 5"]),
    "matmul_transposed": ("return x @ y", (ones(3, 4), ones(6, 4)), ["Transposed, the right side would fit"]),
    "matmul_batch": ("return x @ y", (ones(2, 3, 4), ones(5, 4, 6)), ["batch dimensions", "2 against 5"]),
    "cat": ("return torch.cat([x, y], 0)", (ones(2, 3), ones(2, 4)), ["`x` f32[2, 3]", "`y` f32[2, 4]", "dimension 1 is 3", "4 in the other"]),
    "cat_keyword": ("return torch.cat((x, y), dim=1)", (ones(2, 3), ones(4, 3)), ["dimension 1", "dimension 0 is 2"]),
    "cat_ranks": ("return torch.cat([x, y])", (ones(2, 3), ones(2)), ["different numbers of dimensions"]),
    "stack": ("return torch.stack([x, y])", (ones(2, 3), ones(2, 4)), ["equal shapes", "f32[2, 3]", "f32[2, 4]"]),
    "add": ("return x + y", (ones(2, 3, 8), ones(2, 4, 8)), ["`x` f32[2, 3, 8]", "`y` f32[2, 4, 8]", "dimension -2 is 3 against 4"]),
    "multiply_in_place": ("x *= y", (ones(2, 3), ones(2, 4)), ["dimension -1 is 3 against 4"]),
    "compare": ("return x > y", (ones(2, 3), ones(2, 4)), ["dimension -1 is 3 against 4"]),
    "view_rest": ("return x.view(2, -1, 7)", (ones(2, 576), ones(1)), ["`x` f32[2, 576] has 1152", "multiple of 14"]),
    "reshape": ("return torch.reshape(x, (3, 5))", (ones(2, 8), ones(1)), ["16 elements", "new shape 15"]),
    "cross_entropy_batch": ("return F.cross_entropy(x, y)", (ones(4, 10), ones(5, dtype=torch.int64)), ["`x` f32[4, 10] is 4", "`y` i64[5] is 5"]),
    "cross_entropy_layout": ("return F.cross_entropy(x, y)", (ones(2, 7, 10), ids[:, :1].repeat(1, 7)), ["target must be [2, 10]", "i64[2, 7]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_does_not_fit_is_told_with_both_operands(bench: Workbench, name: str) -> None:
    expression, inputs, said = CASES[name]
    problem = bench.forward(net("pass", expression, "x, y"), *inputs)
    assert problem.code == "shape-mismatch"
    for text in said:
        assert text in problem.message
    assert bench.text_at(problem) == expression.removeprefix("return ")


LAYERS = {
    "linear": ("nn.Linear(400, 120)", ones(2, 576), "Change `400` to `576`", "nn.Linear(576, 120)", ["400 features", "f32[2, 576] is 576"]),
    "linear_product": ("nn.Linear(16 * 5 * 5, 120)", ones(2, 576), "Change `16 * 5 * 5` to `576`", "nn.Linear(576, 120)", ["576"]),
    "linear_keyword": ("nn.Linear(out_features=3, in_features=4)", ones(2, 5), "Change `4` to `5`", "nn.Linear(out_features=3, in_features=5)", ["5"]),
    "conv": ("nn.Conv2d(3, 8, 3)", ones(2, 1, 8, 8), "Change `3` to `1`", "nn.Conv2d(1, 8, 3)", ["3 channels", "f32[2, 1, 8, 8] has 1"]),
    "conv_unbatched": ("nn.Conv1d(3, 8, 3)", ones(4, 8), "Change `3` to `4`", "nn.Conv1d(4, 8, 3)", ["has 4 (dimension 0)"]),
    "conv_transpose": ("nn.ConvTranspose2d(3, 8, 3)", ones(2, 5, 8, 8), "Change `3` to `5`", "nn.ConvTranspose2d(5, 8, 3)", ["3 channels"]),
    "batch_norm": ("nn.BatchNorm2d(8)", ones(2, 16, 4, 4), "Change `8` to `16`", "nn.BatchNorm2d(16)", ["8 channels", "has 16"]),
    "layer_norm": ("nn.LayerNorm(64)", ones(2, 32), "Change `64` to `32`", "nn.LayerNorm(32)", ["[64]", "[32]"]),
    "layer_norm_list": ("nn.LayerNorm([4, 8])", ones(2, 4, 6), "Change `[4, 8]` to `[4, 6]`", "nn.LayerNorm([4, 6])", ["[4, 8]", "[4, 6]"]),
    "group_norm": ("nn.GroupNorm(2, 8)", ones(2, 16, 4), "Change `8` to `16`", "nn.GroupNorm(2, 16)", ["8 channels", "16"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_the_wrong_width_gets_a_fix_that_makes_the_file_run(bench: Workbench, name: str) -> None:
    constructor, x, title, mended, said = LAYERS[name]
    text = net(f"self.layer = {constructor}", "return self.layer(x)")
    problem = explain_layer(bench, text, constructor, x)
    assert problem.code == "shape-mismatch"
    assert "`layer` " + constructor.partition("(")[0].removeprefix("nn.") in problem.message
    for piece in ["`x` f32", *said]:
        assert piece in problem.message
    assert bench.text_at(problem) == "self.layer(x)"
    line = made_at((bench.folder / "model.py").read_text(), constructor, bench.path)[1]
    assert [fix["title"] for fix in problem.fixes] == [f"{title} (line {line})"]
    assert mended in bench.mended(problem)
    (bench.folder / "model.py").write_text(bench.mended(problem))
    bench.load()["Net"]()(x)


def explain_layer(bench: Workbench, text: str, constructor: str, x: torch.Tensor, times: int = 1) -> Problem:
    place = made_at(bench.write(text), constructor, bench.path)
    model = bench.load()["Net"]()
    watch = Watch()
    with pytest.raises((RuntimeError, ValueError)) as caught, watch:
        model(x)
    leaf, path = innermost_leaf(model, caught.value)
    assert watch.failure is not None
    assert leaf is not None
    constructions = {id(leaf) + n: place for n in range(times)}
    context = Context(bench.path, (str(bench.folder),), constructions=constructions)
    return explain_error(caught.value, watch.failure.inside(leaf, path), context)


def test_the_place_where_the_layer_was_made_is_shown_beside_it(bench: Workbench) -> None:
    text = net("self.fc = nn.Linear(4, 5)", "return self.fc(x)")
    problem = explain_layer(bench, text, "nn.Linear(4, 5)", ones(2, 3))
    made = problem.related[-1]
    assert made["message"] == "`fc` is made here"
    line = Path(bench.path).read_text().split("\n")[made["line"] - 1]
    assert line[made["column"] : made["end_column"]] == "nn.Linear(4, 5)"


def test_inside_a_sequential_the_input_is_not_called_by_the_name_of_another(bench: Workbench) -> None:
    text = net("self.net = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(6, 2))", "return self.net(x)")
    problem = bench.forward(text, ones(2, 3))
    assert "`net.2` Linear(in_features=6" in problem.message
    assert "the input f32[2, 7] is 7" in problem.message
    assert "`x`" not in problem.message
    assert bench.text_at(problem) == "self.net(x)"


def test_a_loss_layer_names_its_target_too(bench: Workbench) -> None:
    problem = bench.forward(
        net("self.loss = nn.CrossEntropyLoss()", "return self.loss(x, y)", "x, y"), ones(4, 10), ids[0]
    )
    assert "`x` f32[4, 10] is 4" in problem.message
    assert "`y` i64[3] is 3" in problem.message


def test_a_width_with_a_name_is_changed_where_it_was_written(bench: Workbench) -> None:
    text = net("wide = 4; self.fc = nn.Linear(wide, 5)", "return self.fc(x)")
    problem = explain_layer(bench, text, "nn.Linear(wide, 5)", ones(2, 3))
    assert "wide = 3; self.fc = nn.Linear(wide, 5)" in bench.mended(problem)


@pytest.mark.parametrize(
    "init",
    [
        "wide = 4; self.other = nn.Linear(2, wide); self.fc = nn.Linear(wide, 5)",
        "wide = len('four'); self.fc = nn.Linear(wide, 5)",
        "wide = 4; wide += 0; self.fc = nn.Linear(wide, 5)",
    ],
)
def test_no_fix_where_the_number_may_be_meant_for_something_else(bench: Workbench, init: str) -> None:
    text = net(init, "return self.fc(x)")
    assert explain_layer(bench, text, "nn.Linear(wide, 5)", ones(2, 3)).fixes == []


def test_no_fix_for_a_line_that_made_several_layers(bench: Workbench) -> None:
    text = net("self.fc = nn.Linear(4, 5)", "return self.fc(x)")
    assert explain_layer(bench, text, "nn.Linear(4, 5)", ones(2, 3), times=2).fixes == []


def test_a_flattened_batch_is_named_and_not_mended_by_its_size(bench: Workbench) -> None:
    text = net("self.fc = nn.Linear(6, 5)", "return self.fc(torch.flatten(x))")
    problem = explain_layer(bench, text, "nn.Linear(6, 5)", ones(2, 6))
    assert "flatten(1)" in problem.message
    assert problem.fixes == []


def test_a_view_of_transposed_memory_becomes_a_reshape(bench: Workbench) -> None:
    problem = bench.forward(net("pass", "return x.transpose(1, 2).view(2, 30)"), ones(2, 5, 6))
    assert "use reshape" in problem.message
    assert "x.transpose(1, 2).reshape(2, 30)" in bench.mended(problem)


TYPES = {
    "linear": ("self.m = nn.Linear(4, 4)", "return self.m(x)", ones(2, 4, dtype=torch.int64), ["f32", "`x` i64[2, 4] is i64", "`x.float()`"]),
    "conv": ("self.m = nn.Conv2d(3, 4, 3)", "return self.m(x)", ones(2, 3, 8, 8).double(), ["f64", "`x.float()`"]),
    "embedding": ("self.m = nn.Embedding(10, 4)", "return self.m(x)", ones(2, 3), ["looks up integers", "f32[2, 3]", "`x.long()`"]),
    "matmul": ("pass", "return x @ x.double()", ones(4, 4), ["`x` f32[4, 4]", "`x.double()` f64[4, 4]", "x.to(torch.float64)"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_mixed_types_are_told_with_the_conversion(bench: Workbench, name: str) -> None:
    init, forward, x, said = TYPES[name]
    problem = bench.forward(net(init, forward), x)
    assert problem.code == "dtype-mismatch"
    for text in said:
        assert text in problem.message


CHECKED_BY_THE_LAYER = {
    "batch_norm": ("nn.BatchNorm2d(8)", ones(2, 32), ["[N, C, H, W]", "f32[2, 32] has 2 dimensions"], ["Change `nn.BatchNorm2d` to `nn.BatchNorm1d`"]),
    "lstm": ("nn.LSTM(5, 6)", ones(2, 3, 4), ["5 features", "f32[2, 3, 4] is 4"], ["Change `5` to `4`"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED_BY_THE_LAYER)
def test_what_a_layer_checks_before_any_torch_call_is_explained_too(bench: Workbench, name: str) -> None:
    constructor, x, said, titles = CHECKED_BY_THE_LAYER[name]
    place = made_at(bench.write(net(f"self.layer = {constructor}", "return self.layer(x)")), constructor, bench.path)
    model = bench.load()["Net"]()
    with pytest.raises((RuntimeError, ValueError)) as caught:
        model(x)
    failure = Failure.of(caught.value, model.layer, (x,), {}, "").inside(model.layer, "layer")
    context = Context(bench.path, (str(bench.folder),), constructions={id(model.layer): place})
    problem = explain_error(caught.value, failure, context)
    assert problem.code == "shape-mismatch"
    assert "`layer` " in problem.message
    for text in said:
        assert text in problem.message
    assert [fix["title"].partition(" (line")[0] for fix in problem.fixes] == titles


def test_attention_of_another_width(bench: Workbench) -> None:
    problem = bench.forward(
        net("self.attend = nn.MultiheadAttention(8, 2)", "return self.attend(x, x, x)"), ones(2, 3, 4)
    )
    assert problem.code == "shape-mismatch"
    assert "embed_dim=8" in problem.message
    assert "`x` f32[2, 3, 4], which is 4." in problem.message


REFUSED_BY_EAGER = {
    "linear": (lambda x: F.linear(x, ones(3, 4)), ones(2, 4, dtype=torch.int64)),
    "matmul": (lambda x: ones(4, 4) @ x, ones(4, 4).double()),
    "bmm": (lambda x: torch.bmm(ones(1, 4, 4), x), ones(1, 4, 4).half()),
    "addmm": (lambda x: torch.addmm(ones(4), x, ones(4, 4)), ones(4, 4).double()),
    "conv_transpose": (lambda x: F.conv_transpose2d(x, ones(3, 8, 3, 3)), ones(2, 1, 8, 8)),
}


@pytest.mark.parametrize("name", REFUSED_BY_EAGER)
def test_what_meta_kernels_let_pass_is_refused_where_eager_refuses_it(name: str) -> None:
    function, x = REFUSED_BY_EAGER[name]
    with pytest.raises(RuntimeError):
        function(x)
    with pytest.raises(RuntimeError, match=r"computes|needs one type|expects"), MetaMode(Shadows()):
        function(x)


def test_autocast_mixes_types_without_complaint() -> None:
    with torch.autocast("cpu"), MetaMode(Shadows()):
        assert F.linear(ones(2, 4).bfloat16(), ones(3, 4)).shape == (2, 3)


def test_dimensions_are_named_where_they_have_names(bench: Workbench) -> None:
    named = {TensorType("float32", (2, size)): ("B", str(size)) for size in (3, 4)}
    problem = bench.forward(net("pass", "return x + y", "x, y"), ones(2, 3), ones(2, 4), symbols=named)
    assert "f32[B=2, 3]" in problem.message


def test_an_error_without_an_explainer_still_shows_the_operands(bench: Workbench) -> None:
    problem = bench.forward(net("pass", "return x.permute(0, 2, 1)"), ones(2, 3))
    assert problem.code == "forward-error"
    assert "RuntimeError" in problem.message
    assert "`x` f32[2, 3]" in problem.message


def test_columns_are_code_points_behind_wide_characters(bench: Workbench) -> None:
    problem = bench.forward(net("pass", "s = '𝔘é'; return x + y", "x, y"), ones(3), ones(4))
    assert bench.text_at(problem) == "x + y"


def test_the_call_chain_leads_from_the_innermost_frame_out(bench: Workbench) -> None:
    bench.write("def join(a, b):\n    return a + b\n\ndef use(a, b):\n    return join(a, b)\n", "helper.py")
    sys.path.insert(0, str(bench.folder))
    try:
        body = "import helper\n        return helper.use(x, y)"
        problem = bench.forward(net("pass", body, "x, y"), ones(3), ones(4))
    finally:
        sys.path.remove(str(bench.folder))
        sys.modules.pop("helper", None)
    assert problem.file == bench.path
    assert bench.text_at(problem) == "helper.use(x, y)"
    assert "`a` f32[3]" in problem.message
    assert [place["message"] for place in problem.related] == ["in join", "in use"]


# Errors that are not about tensors


def test_a_missing_attribute_is_renamed_to_its_neighbour(bench: Workbench) -> None:
    problem = bench.forward(net("self.layer_1 = nn.Linear(3, 3)", "return self.layer1(x)"), ones(3))
    assert problem.code == "attribute-error"
    assert "`layer_1`" in problem.message
    assert "return self.layer_1(x)" in bench.mended(problem)


def test_a_missing_attribute_with_no_neighbour_lists_the_layers(bench: Workbench) -> None:
    problem = bench.forward(net("self.encoder = nn.Linear(3, 3)", "return self.zzz(x)"), ones(3))
    assert "It has the layers encoder." in problem.message
    assert problem.fixes == []


def test_a_missing_package_names_the_interpreter_and_what_to_install(bench: Workbench) -> None:
    problem = bench.raising("import", "\nimport skimage.nothing_here\n", header="")
    assert problem.code == "missing-package"
    assert f"{sys.executable} -m pip install scikit-image" in problem.message
    assert problem.line == 2


def test_a_missing_module_of_the_workspace_is_not_to_be_installed(bench: Workbench) -> None:
    (bench.folder / "nearby").mkdir()
    problem = bench.raising("import", "import nearby.absent\n", header="")
    assert problem.code == "import-error"
    assert "pip" not in problem.message


def test_a_syntax_error_is_where_the_compiler_says(bench: Workbench) -> None:
    problem = bench.raising("import", "x = 1\ny = (2 +\n", header="")
    assert problem.code == "syntax-error"
    assert (problem.file, problem.line, problem.column) == (bench.path, 2, 4)
    assert "was never closed" in problem.message


def test_a_model_without_forward_is_told_to_define_it(bench: Workbench) -> None:
    bench.write("class Net(nn.Module):\n    pass\n")
    model = bench.load()["Net"]()
    with pytest.raises(NotImplementedError) as caught:
        model(ones(1))
    problem = explain_error(caught.value, None, Context(bench.path, where=(4, 6, 4, 9)))
    assert problem.code == "missing-forward"
    assert "Net has no forward: define" in problem.message
    assert bench.text_at(problem) == "Net"


def test_a_module_list_cannot_be_called(bench: Workbench) -> None:
    problem = bench.forward(net("self.many = nn.ModuleList()", "return self.many(x)"), ones(1))
    assert "ModuleList cannot be called: loop over it" in problem.message


@pytest.mark.parametrize("deeper", range(3))
def test_endless_recursion_names_its_cycle_from_any_depth_of_the_stack(bench: Workbench, deeper: int) -> None:
    text = net("pass", "return self.again(x)\n    def again(self, x):\n        return self.forward(x)")

    def at_depth(depth: int) -> Problem:
        return at_depth(depth - 1) if depth else bench.forward(text, ones(1))

    problem = at_depth(deeper)
    assert problem.code == "recursion"
    assert problem.message == (
        "This recurses without end: Net.forward -> Net.again -> Net.forward. It needs a case that ends it."
    )
    assert bench.text_at(problem) == "self.forward(x)"
    assert [each["line"] for each in problem.related] == [problem.line - 2]


def test_super_init_left_out(bench: Workbench) -> None:
    text = "class Net(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(1, 1)\n"
    problem = bench.raising("construct", text)
    assert problem.code == "constructor-error"
    assert "super().__init__()" in problem.message
    assert problem.line == 6


def test_an_attribute_read_before_super_init(bench: Workbench) -> None:
    text = "class Net(nn.Module):\n    def __init__(self):\n        self.size = self.width\n"
    problem = bench.raising("construct", text)
    assert problem.code == "attribute-error"
    assert "'Net' object has no attribute 'width'" in problem.message


def test_a_layer_that_cannot_be_printed_is_named_by_its_class(bench: Workbench) -> None:
    class Odd(nn.Linear):
        def extra_repr(self) -> str:
            raise KeyError("name")

    failure = Failure.of(error := RuntimeError("no"), F.linear, (ones(2, 3), ones(5, 4)), {}, "")
    problem = explain_error(error, failure.inside(Odd(4, 5), "odd"), Context(bench.path))
    assert problem.message.startswith("`odd` Odd expects 4 features")


def test_an_error_in_the_constructor_names_the_model(bench: Workbench) -> None:
    problem = bench.raising("construct", net("self.size = {}['heads']", "return x"))
    assert problem.code == "constructor-error"
    assert problem.message == (
        "Constructing Net raised KeyError: 'heads'. "
        "Fix it, or give other arguments in a comment above the class: `# mase: Net(...)`."
    )
    assert bench.text_at(problem) == "{}['heads']"


def test_wrong_constructor_arguments_of_ours_point_at_the_class(bench: Workbench) -> None:
    bench.write("class Net(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n")
    kind = bench.load()["Net"]
    with pytest.raises(TypeError) as caught:
        kind()
    # The only frame is the test's own, outside the workspace.
    context = Context(bench.path, (str(bench.folder),), phase="construct", model="Net", where=(4, 6, 4, 9))
    problem = explain_error(caught.value, None, context)
    assert "missing 1 required positional argument: 'dim'" in problem.message
    assert bench.text_at(problem) == "Net"


def test_a_value_that_cannot_be_known_says_so(bench: Workbench) -> None:
    text = net("self.fc = nn.Linear(3, 1)", "return x if self.fc(x).item() > 0 else -x")
    bench.write(text)
    with torch.device("meta"):
        model = bench.load()["Net"]()
    with pytest.raises(RuntimeError) as caught:
        model(torch.ones(3, device="meta"))
    problem = explain_error(caught.value, None, Context(bench.path))
    assert problem.code == "value-dependent"
    assert bench.text_at(problem) == "self.fc(x).item()"
    own = explain_error(ValueDependentError("item() needs the value"), None, Context(bench.path))
    assert own.code == "value-dependent"


def test_a_failure_of_another_error_is_not_mixed_in(bench: Workbench) -> None:
    swallowed = Failure.of(RuntimeError("old"), torch.add, (ones(2), ones(3)), {}, "")
    problem = explain_error(KeyError("new"), swallowed, Context(bench.path))
    assert "f32" not in problem.message
