"""Every callable of torch's namespaces is in the table, under its own name or MASE's, and none by resemblance."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mase_server.ops.rows import BUILTIN, IMPLICIT, MODULE_RELATED, snake_case
from mase_server.ops.table import NAMES, ROWS, TABLE, op_info
from mase_server.ops.types import FAMILIES, MASE_TYPES

NAMESPACES = {
    "torch": torch,
    "Tensor": torch.Tensor,
    "functional": F,
    "special": torch.special,
    "linalg": torch.linalg,
    "fft": torch.fft,
}

#: Public callables of these namespaces that return no tensor, by torch's documentation: settings, queries, machinery.
NO_TENSOR = {
    "are_deterministic_algorithms_enabled", "autocast_decrement_nesting", "autocast_increment_nesting", "classproperty",
    "clear_autocast_cache", "compile", "compiled_with_cxx11_abi", "cudnn_is_acceptable", "fork",
    "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_ipu_dtype",
    "get_autocast_xla_dtype", "get_default_device", "get_default_dtype", "get_deterministic_debug_mode",
    "get_device_module", "get_file_path", "get_float32_matmul_precision", "get_num_interop_threads", "get_num_threads",
    "import_ir_module", "import_ir_module_from_buffer", "init_num_threads", "initial_seed",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_autocast_cache_enabled", "is_autocast_cpu_enabled",
    "is_autocast_enabled", "is_autocast_ipu_enabled", "is_autocast_xla_enabled",
    "is_deterministic_algorithms_warn_only_enabled", "is_distributed", "is_grad_enabled", "is_inference_mode_enabled",
    "is_storage", "is_vulkan_available", "is_warn_always_enabled", "load", "manual_seed",
    "merge_type_from_type_comment", "parse_ir", "parse_schema", "parse_type_comment",
    "prepare_multiprocessing_environment", "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12", "q_per_channel_axis",
    "q_scale", "q_zero_point", "save", "seed", "set_anomaly_enabled", "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled",
    "set_autocast_gpu_dtype", "set_autocast_ipu_dtype", "set_autocast_ipu_enabled", "set_autocast_xla_dtype",
    "set_autocast_xla_enabled", "set_default_device", "set_default_dtype", "set_default_tensor_type",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads",
    "set_num_threads", "set_printoptions", "set_rng_state", "set_warn_always", "sym_constrain_range",
    "sym_constrain_range_for_size", "sym_float", "sym_fresh_size", "sym_int", "sym_ite", "sym_max", "sym_min",
    "sym_not", "sym_sqrt", "sym_sum", "thread_safe_generator", "to_dlpack", "typename", "unify_type_list",
    "use_deterministic_algorithms", "vmap", "wait", "backward", "const_data_ptr", "data_ptr", "dense_dim", "dim_order",
    "is_coalesced", "is_pinned", "is_set_to", "is_shared", "module_load", "qscheme", "record_stream", "register_hook",
    "register_post_accumulate_grad_hook", "reinforce", "retain_grad", "sparse_dim", "storage", "storage_type",
    "untyped_storage", "Optional", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function",
    "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
}  # fmt: skip

#: Names in torch's namespaces that its documentation calls aliases of an operator that MASE names.
ALIASES = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs",
    "not_equal": "ne", "less_equal": "le", "greater_equal": "ge", "bitwise_not": "invert",
    "concat": "cat", "concatenate": "cat", "swapaxes": "transpose", "swapdims": "transpose", "special_expit": "sigmoid",
    "special_erf": "erf", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    "special_logsumexp": "logsumexp", "linalg_matmul": "matmul", "spmm": "mm", "dsmm": "mm", "hsmm": "hspmm",
    "saddmm": "sspaddmm", "index_put_": "index_put",
}  # fmt: skip


def public_callables():
    for space, holder in NAMESPACES.items():
        for name in dir(holder):
            found = getattr(holder, name)
            if not name.startswith("_") and callable(found) and not isinstance(found, (type, torch.dtype)):
                yield space, name, found


def own_names(space, name):
    full = f"{space}_{name}" if space in ("special", "linalg", "fft") else name
    return {full, full.removesuffix("_"), ALIASES.get(full), ALIASES.get(full.removesuffix("_"))}


def test_every_public_callable_that_returns_tensors_is_known():
    unknown = {
        f"{space}.{name}"
        for space, name, found in public_callables()
        if not op_info("call_function", found).known and name not in NO_TENSOR
    }
    assert unknown == set()


def test_what_is_said_to_return_no_tensor_is_not_in_the_table():
    listed = {
        name for _, name, found in public_callables() if name in NO_TENSOR and op_info("call_function", found).known
    }
    assert listed == set()


def test_no_callable_has_a_name_that_is_not_its_own_or_a_documented_alias():
    wrong = {
        f"{space}.{name}": info.mase_op
        for space, name, found in public_callables()
        if (info := op_info("call_function", found)).mase_op not in own_names(space, name) and name not in NO_TENSOR
    }
    assert wrong == {}


def test_every_method_says_the_same_by_name_as_by_descriptor():
    for space, name, found in public_callables():
        if space == "Tensor":
            assert op_info("call_method", name) == op_info("call_function", found), name


def test_every_public_leaf_module_is_known_and_is_no_builtin():
    containers = {"Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Container"}
    bases = {"RNNCellBase", "DataParallel"}
    classes = {name: c for name, c in vars(nn).items() if isinstance(c, type) and issubclass(c, nn.Module)}
    assert {name for name, cls in classes.items() if cls not in TABLE} == containers | bases


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (torch.rsqrt, "rsqrt"),
        (torch.log1p, "log1p"),
        (torch.atan, "atan"),
        (torch.acos, "acos"),
        (torch.asin, "asin"),
        (torch.amax, "amax"),
        (torch.argmin, "argmin"),
        (torch.clone, "clone"),
        (torch.logical_not, "logical_not"),
    ],
)
def test_the_nine_swaps_of_mase_do_not_happen(target, expected):
    assert op_info("call_function", target).mase_op == expected
    assert op_info("call_method", target.__name__).mase_op == expected


def test_every_name_on_mases_lists_has_an_operator_that_torch_offers():
    made_by_mase = {"df_split", "gemm", "cast", "shape", "call"}
    assert made_by_mase == (MODULE_RELATED | BUILTIN | IMPLICIT) - NAMES


@pytest.mark.parametrize(
    ("module", "mase_op", "mase_type"),
    [
        (nn.AdaptiveAvgPool1d(1), "adaptive_avg_pool1d", "module_related_func"),
        (nn.AdaptiveAvgPool2d(1), "adaptive_avg_pool2d", "module_related_func"),
        (nn.AdaptiveMaxPool1d(1), "adaptive_max_pool1d", "module_related_func"),
        (nn.AdaptiveMaxPool2d(1), "adaptive_max_pool2d", "module_related_func"),
        (nn.AvgPool1d(2), "avg_pool1d", "module_related_func"),
        (nn.MaxPool2d(2), "max_pool2d", "module_related_func"),
        (nn.BatchNorm1d(2), "batch_norm1d", "module"),
        (nn.BatchNorm2d(2), "batch_norm2d", "module"),
        (nn.Conv1d(1, 1, 1), "conv1d", "module_related_func"),
        (nn.Conv2d(1, 1, 1), "conv2d", "module_related_func"),
        (nn.LayerNorm(2), "layer_norm", "module_related_func"),
        (nn.Linear(1, 1), "linear", "module_related_func"),
        (nn.ReLU(), "relu", "module_related_func"),
        (nn.Identity(), "identity", "module_related_func"),
        (nn.SiLU(), "silu", "module_related_func"),
        (nn.LogSigmoid(), "logsigmoid", "module_related_func"),
        (nn.Softmax(-1), "softmax", "module_related_func"),
        (nn.GELU(), "gelu", "module_related_func"),
        (nn.Embedding(2, 2), "embedding", "module_related_func"),
        (nn.Dropout(), "dropout", "implicit_func"),
        (nn.Flatten(), "flatten", "implicit_func"),
        (nn.GroupNorm(1, 2), "group_norm", "module_related_func"),
        (nn.InstanceNorm2d(2), "instance_norm2d", "module"),
        (nn.RMSNorm(2), "rms_norm", "module_related_func"),
        (nn.Conv3d(1, 1, 1), "conv3d", "module_related_func"),
        (nn.LSTM(2, 2), "lstm", "module"),
        (nn.GRU(2, 2), "gru", "module"),
        (nn.LeakyReLU(), "leaky_relu", "module_related_func"),
        (nn.CrossEntropyLoss(), "cross_entropy", "module_related_func"),
        (nn.Upsample(scale_factor=2), "upsample", "module_related_func"),
        (nn.MultiheadAttention(4, 2), "multihead_attention", "module"),
    ],
    ids=lambda value: str(value).partition("(")[0],
)
def test_modules_have_mases_names_and_types(module, mase_op, mase_type):
    info = op_info("call_module", module)
    assert (info.mase_op, info.mase_type) == (mase_op, mase_type)
    assert op_info("call_module", "some.path", module) == info


@pytest.mark.parametrize(
    ("target", "mase_op", "mase_type", "implicit"),
    [
        (F.relu, "relu", "module_related_func", False),
        (F.linear, "linear", "module_related_func", False),
        (F.softmax, "softmax", "module_related_func", False),
        (torch.flatten, "flatten", "implicit_func", True),
        (torch.bmm, "bmm", "builtin_func", False),
        (operator.add, "add", "builtin_func", False),
        (operator.iadd, "add", "builtin_func", False),
        (operator.truediv, "div", "builtin_func", False),
        (operator.matmul, "matmul", "builtin_func", False),
        (operator.getitem, "getitem", "builtin_func", False),
        (operator.setitem, "setitem", "builtin_func", False),
        (operator.invert, "invert", "builtin_func", False),
        (torch.Tensor.__add__, "add", "builtin_func", False),
        (torch.Tensor.__rsub__, "sub", "builtin_func", False),
        (torch.Tensor.add_, "add", "builtin_func", False),
        (torch.Tensor.masked_fill_, "masked_fill_", "implicit_func", True),
        (torch.gt, "gt", "builtin_func", False),
        (torch.greater, "greater", "builtin_func", False),
        (torch.zeros, "zeros", "builtin_func", False),
        (torch.stack, "stack", "implicit_func", True),
        (torch.Tensor.float, "float", "implicit_func", True),
        (getattr, "getattr", "implicit_func", True),
        (F.scaled_dot_product_attention, "scaled_dot_product_attention", "builtin_func", False),
        (torch.ops.aten.add.Tensor, "add", "builtin_func", False),
        (torch.ops.aten.rsqrt, "rsqrt", "builtin_func", False),
    ],
)
def test_functions_have_mases_names_and_types(target, mase_op, mase_type, implicit):
    info = op_info("call_function", target)
    assert (info.mase_op, info.mase_type, info.implicit) == (mase_op, mase_type, implicit)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (torch.ops.aten.slice.Tensor, ("slice", True)),
        (torch.ops.aten.special_expit.default, ("sigmoid", True)),
        (torch.ops.aten.linalg_vector_norm, ("linalg_vector_norm", True)),
        (torch.ops.aten._softmax_backward_data.default, ("_softmax_backward_data", False)),
    ],
)
def test_an_aten_operator_is_torch_s_function_of_exactly_that_name(target, expected):
    info = op_info("call_function", target)
    assert (info.mase_op, info.known) == expected


def test_an_operator_of_another_library_is_not_torch_s_of_the_same_name():
    library = torch.library.Library("of_the_user", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    library.define("fused(Tensor x) -> Tensor")
    assert op_info("call_function", torch.ops.of_the_user.relu.default).mase_op == "custom_relu"
    assert op_info("call_function", torch.ops.of_the_user.fused).mase_op == "fused"


@pytest.mark.parametrize("kind", ["placeholder", "get_attr", "output"])
def test_fx_s_own_kinds_are_types_of_their_own(kind):
    info = op_info(kind, "x")
    assert (info.mase_op, info.mase_type, info.arg_names) == (kind, kind, ())


def test_an_unknown_function_is_called_what_it_calls_itself():
    def fused_thing(x):
        return x

    info = op_info("call_function", fused_thing)
    assert (info.mase_op, info.family, info.known) == ("fused_thing", "other", False)


def test_an_unhashable_callable_is_named_by_its_type():
    class Unhashable:
        __hash__ = None

        def __call__(self, x):
            return x

    assert op_info("call_function", Unhashable()).mase_op == "Unhashable"


def test_a_function_of_the_user_s_that_is_called_relu_is_not_mases_relu():
    def relu(x):
        return x

    assert op_info("call_function", relu).mase_op == "custom_relu"


def test_an_unknown_method_keeps_its_name():
    info = op_info("call_method", "no_such_method")
    assert (info.mase_op, info.known) == ("no_such_method", False)


def test_a_leaf_module_of_the_user_s_is_named_after_its_class():
    class BertSelfAttention(nn.Module):
        def forward(self, hidden: torch.Tensor, scale: float) -> torch.Tensor:
            return hidden

    info = op_info("call_module", BertSelfAttention())
    assert (info.mase_op, info.mase_type, info.family, info.known) == ("bert_self_attention", "module", "other", False)
    assert info.arg_names == ("data_in_0", "scale")


def test_a_class_of_the_user_s_that_is_called_linear_is_not_mases_linear():
    cls = type("Linear", (nn.Module,), {"forward": lambda self, x: x})
    assert op_info("call_module", cls()).mase_op == "custom_linear"


def test_a_subclass_is_its_base_only_while_it_runs_its_base_s_forward():
    class Named(nn.Linear):
        pass

    class Changed(nn.Linear):
        def forward(self, input):
            return super().forward(input).relu()

    assert op_info("call_module", Named(2, 3)).mase_op == "linear"
    assert op_info("call_module", Changed(2, 3)).mase_op == "changed"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("BertSelfAttention", "bert_self_attention"), ("GPT2MLP", "gpt2_mlp"), ("Conv1D", "conv1d"), ("VAE", "vae")],
)
def test_class_names_become_snake_case(name, expected):
    assert snake_case(name) == expected


def test_no_callable_is_claimed_by_two_rows():
    owners = {}
    for row in ROWS:
        for target in set(row.targets()):
            owners.setdefault(target, set()).add(id(row))
    assert [target for target, rows in owners.items() if len(rows) > 1] == []


def test_every_row_has_a_family_and_every_family_a_row():
    assert {row.family for row in ROWS} == set(FAMILIES)


def test_every_answer_has_one_of_mases_types():
    assert {op_info("call_function", found).mase_type for *_, found in public_callables()} <= set(MASE_TYPES)
