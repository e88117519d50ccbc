"""The table of what the server answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lsprotocol import types as lsp

from mase_server.lsp import (
    actions,
    calls,
    commands,
    contents,
    diagnostics,
    hardware_requests,
    hints,
    hover,
    input_sets,
    lens,
    lifecycle,
    notebooks,
    pass_actions,
    pass_commands,
    places,
    progress,
    sync,
    verilog_commands,
    workspace,
)

Handler = Callable[..., Awaitable[Any]]

#: Notifications that pygls would handle itself: it splits lines where the protocol does not, and exits at once.
TAKEN_OVER = (
    lsp.EXIT, lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_CHANGE, lsp.TEXT_DOCUMENT_DID_CLOSE,
    lsp.NOTEBOOK_DOCUMENT_DID_OPEN, lsp.NOTEBOOK_DOCUMENT_DID_CHANGE, lsp.NOTEBOOK_DOCUMENT_DID_CLOSE,
)  # fmt: skip

#: (method, handler, options of the announced capability)
FEATURES: tuple[tuple[str, Handler, Any], ...] = (
    (lsp.INITIALIZE, lifecycle.initialize, None),
    (lsp.INITIALIZED, lifecycle.initialized, None),
    (lsp.SHUTDOWN, lifecycle.shutdown, None),
    (lsp.EXIT, lifecycle.leave, None),
    (lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, workspace.did_change_configuration, None),
    (lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, workspace.did_change_folders, None),
    (lsp.TEXT_DOCUMENT_DID_OPEN, sync.did_open, None),
    (lsp.TEXT_DOCUMENT_DID_CHANGE, sync.did_change, None),
    (lsp.TEXT_DOCUMENT_DID_SAVE, sync.did_save, lsp.SaveOptions(include_text=False)),
    (lsp.TEXT_DOCUMENT_DID_CLOSE, sync.did_close, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_OPEN, notebooks.did_open, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_CHANGE, notebooks.did_change, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_SAVE, notebooks.did_save, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_CLOSE, notebooks.did_close, None),
    (lsp.TEXT_DOCUMENT_INLAY_HINT, hints.inlay_hints, None),
    (lsp.INLAY_HINT_RESOLVE, hints.resolve, None),
    (lsp.TEXT_DOCUMENT_HOVER, hover.hover, None),
    (lsp.TEXT_DOCUMENT_CODE_LENS, lens.code_lens, None),
    (
        lsp.TEXT_DOCUMENT_DIAGNOSTIC,
        diagnostics.pull,
        lsp.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier=diagnostics.SOURCE),
    ),
    (
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        actions.code_actions,
        lsp.CodeActionOptions(
            code_action_kinds=[lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite, pass_actions.KIND],
            resolve_provider=True,
        ),
    ),
    (lsp.CODE_ACTION_RESOLVE, actions.resolve, None),
    (lsp.WINDOW_WORK_DONE_PROGRESS_CANCEL, progress.cancel, None),
    (lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT, contents.content, None),
    (lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, hardware_requests.highlight, None),
    (lsp.TEXT_DOCUMENT_DEFINITION, hardware_requests.definition, None),
    (lsp.TEXT_DOCUMENT_IMPLEMENTATION, hardware_requests.implementation, None),
    ("mase/counterparts", hardware_requests.counterparts, None),
    ("mase/nodesAt", places.nodes_at, None),
    ("mase/presentPlace", places.present_place, None),
    ("mase/costRowsAt", places.cost_rows_at, None),
    ("mase/buildForm", verilog_commands.build_form, None),
    ("mase/choices", calls.choices, None),
    ("mase/checkArgument", pass_commands.check_argument, None),
    *((name, handler, None) for name, handler in commands.custom_requests()),
)

#: Commands that an editor may have executed.
COMMANDS: dict[str, Handler] = {
    "mase.retrace": commands.retrace,
    "mase.restart": commands.restart,
    "mase.pickRoot": commands.pick_root,
    "mase.pickInputs": input_sets.pick_inputs,
    "mase.writeInputs": input_sets.write_inputs,
    "mase.applyPass": pass_commands.apply_pass,
    "mase.choosePass": pass_commands.choose_pass,
    "mase.undoPass": pass_commands.undo_pass,
    "mase.redoPass": pass_commands.redo_pass,
    "mase.resetPasses": pass_commands.reset_passes,
    "mase.pipeline": pass_commands.pipeline,
    "mase.showTransformed": pass_commands.show_transformed,
    "mase.compare": pass_commands.compare,
    "mase.writePipeline": pass_commands.write_pipeline,
    "mase.emitVerilog": verilog_commands.emit_verilog,
    "mase.verilogSettings": verilog_commands.verilog_settings,
    "mase.simulateVerilog": verilog_commands.simulate_verilog,
    "mase.saveVerilog": verilog_commands.save_verilog,
    "mase.closeVerilog": verilog_commands.close_verilog,
    "mase.showVerilogLine": verilog_commands.show_verilog_line,
    "mase.showPythonLine": verilog_commands.show_python_line,
}
