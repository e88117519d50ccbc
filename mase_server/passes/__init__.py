"""Passes: functions `(graph, pass_args) -> (graph, dict)` over a MaseGraph, under MASE's names."""

from __future__ import annotations

from mase_server.passes.attention import attention_swap_transform_pass
from mase_server.passes.bits import calculate_avg_bits_mg_analysis_pass
from mase_server.passes.error import measure_error_analysis_pass
from mase_server.passes.fusion import (
    conv_bn_fusion_transform_pass,
    fold_weights_transform_pass,
    norm_fusion_transform_pass,
    norm_to_conv_transform_pass,
    remove_dropout_transform_pass,
    remove_loss_transform_pass,
)
from mase_server.passes.gptq import gptq_transform_pass
from mase_server.passes.granularity import lower_granularity_transform_pass, raise_granularity_transform_pass
from mase_server.passes.hook_inspection import hook_inspection_analysis_pass
from mase_server.passes.load_checkpoint import load_checkpoint_transform_pass
from mase_server.passes.lora import fuse_lora_weights_transform_pass, insert_lora_adapter_transform_pass
from mase_server.passes.metadata import (
    add_common_metadata_analysis_pass,
    add_hardware_metadata_analysis_pass,
    add_software_metadata_analysis_pass,
    init_metadata_analysis_pass,
    metadata_value_type_cast_transform_pass,
    patch_metadata_transform_pass,
)
from mase_server.passes.mixed_precision import mixed_precision_transform_pass
from mase_server.passes.module import quantize_module_transform_pass
from mase_server.passes.profile import profile_statistics_analysis_pass
from mase_server.passes.prune import prune_detach_hook_transform_pass, prune_transform_pass
from mase_server.passes.quantize import quantize_transform_pass
from mase_server.passes.report import (
    report_graph_analysis_pass,
    report_node_hardware_type_analysis_pass,
    report_node_meta_param_analysis_pass,
    report_node_shape_analysis_pass,
    report_node_type_analysis_pass,
)
from mase_server.passes.report.report_graph import plot_graph_analysis_pass
from mase_server.passes.report.summarize_quantization import summarize_quantization_analysis_pass
from mase_server.passes.sharding.autosharding import autosharding_analysis_pass
from mase_server.passes.sharding.resharding import resharding_transform_pass
from mase_server.passes.sparsity import (
    add_movement_metadata_analysis_pass,
    add_natural_sparsity_metadata_analysis_pass,
    add_pruning_metadata_analysis_pass,
)
from mase_server.passes.tables.logicnets_fusion import logicnets_fusion_transform_pass
from mase_server.passes.training import training_base_pass
from mase_server.passes.verify import (
    MetadataError,
    verify_common_metadata_analysis_pass,
    verify_hardware_metadata_analysis_pass,
    verify_software_metadata_analysis_pass,
)
from mase_server.passes.verilog.as_hardware import as_hardware_transform_pass, emit_verilog_top_analysis_pass

__all__ = [
    "MetadataError",
    "add_common_metadata_analysis_pass",
    "add_hardware_metadata_analysis_pass",
    "add_movement_metadata_analysis_pass",
    "add_natural_sparsity_metadata_analysis_pass",
    "add_pruning_metadata_analysis_pass",
    "add_software_metadata_analysis_pass",
    "as_hardware_transform_pass",
    "attention_swap_transform_pass",
    "autosharding_analysis_pass",
    "calculate_avg_bits_mg_analysis_pass",
    "conv_bn_fusion_transform_pass",
    "emit_verilog_top_analysis_pass",
    "fold_weights_transform_pass",
    "fuse_lora_weights_transform_pass",
    "gptq_transform_pass",
    "hook_inspection_analysis_pass",
    "init_metadata_analysis_pass",
    "insert_lora_adapter_transform_pass",
    "load_checkpoint_transform_pass",
    "logicnets_fusion_transform_pass",
    "lower_granularity_transform_pass",
    "measure_error_analysis_pass",
    "metadata_value_type_cast_transform_pass",
    "mixed_precision_transform_pass",
    "norm_fusion_transform_pass",
    "norm_to_conv_transform_pass",
    "patch_metadata_transform_pass",
    "plot_graph_analysis_pass",
    "profile_statistics_analysis_pass",
    "prune_detach_hook_transform_pass",
    "prune_transform_pass",
    "quantize_module_transform_pass",
    "quantize_transform_pass",
    "raise_granularity_transform_pass",
    "remove_dropout_transform_pass",
    "remove_loss_transform_pass",
    "report_graph_analysis_pass",
    "report_node_hardware_type_analysis_pass",
    "report_node_meta_param_analysis_pass",
    "report_node_shape_analysis_pass",
    "report_node_type_analysis_pass",
    "resharding_transform_pass",
    "summarize_quantization_analysis_pass",
    "training_base_pass",
    "verify_common_metadata_analysis_pass",
    "verify_hardware_metadata_analysis_pass",
    "verify_software_metadata_analysis_pass",
]
