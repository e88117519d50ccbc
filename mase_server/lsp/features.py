"""The table of the requests, notifications and commands that the server answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lsprotocol import types as lsp

from mase_server.lsp import (
    actions,
    calls,
    commands,
    compiled,
    contents,
    diagnostics,
    hints,
    hover,
    input_sets,
    lens,
    listener,
    live,
    notebooks,
    pass_actions,
    run_costs,
    verilog_commands,
    workspace,
)

Handler = Callable[..., Awaitable[Any]]

#: Notifications that pygls would handle itself: it splits lines unlike the protocol, and exits at once.
TAKEN_OVER = (
    lsp.EXIT, lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_CHANGE, lsp.TEXT_DOCUMENT_DID_CLOSE,
    lsp.NOTEBOOK_DOCUMENT_DID_OPEN, lsp.NOTEBOOK_DOCUMENT_DID_CHANGE, lsp.NOTEBOOK_DOCUMENT_DID_CLOSE,
)  # fmt: skip

#: (method, handler, options of the announced capability)
FEATURES: tuple[tuple[str, Handler, Any], ...] = (
    (lsp.INITIALIZE, commands.initialize, None),
    (lsp.INITIALIZED, commands.initialized, None),
    (lsp.SHUTDOWN, commands.shutdown, None),
    (lsp.EXIT, commands.exit_session, None),
    (lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, workspace.did_change_configuration, None),
    (lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, workspace.did_change_folders, None),
    (lsp.TEXT_DOCUMENT_DID_OPEN, live.did_open, None),
    (lsp.TEXT_DOCUMENT_DID_CHANGE, live.did_change, None),
    (lsp.TEXT_DOCUMENT_DID_SAVE, live.did_save, lsp.SaveOptions(include_text=False)),
    (lsp.TEXT_DOCUMENT_DID_CLOSE, live.did_close, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_OPEN, notebooks.did_open, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_CHANGE, notebooks.did_change, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_SAVE, notebooks.did_save, None),
    (lsp.NOTEBOOK_DOCUMENT_DID_CLOSE, notebooks.did_close, None),
    (lsp.TEXT_DOCUMENT_INLAY_HINT, hints.inlay_hints, None),
    (lsp.INLAY_HINT_RESOLVE, hints.resolve_hint, None),
    (lsp.TEXT_DOCUMENT_HOVER, hover.hover, None),
    (lsp.TEXT_DOCUMENT_CODE_LENS, lens.code_lens, None),
    (
        lsp.TEXT_DOCUMENT_DIAGNOSTIC,
        diagnostics.pull_diagnostics,
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
    (lsp.CODE_ACTION_RESOLVE, actions.resolve_action, None),
    (lsp.WINDOW_WORK_DONE_PROGRESS_CANCEL, listener.cancel_progress, None),
    (lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT, contents.text_document_content, None),
    (lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, compiled.highlight_lines, None),
    (lsp.TEXT_DOCUMENT_DEFINITION, compiled.find_definition, None),
    (lsp.TEXT_DOCUMENT_IMPLEMENTATION, compiled.find_implementation, None),
    ("mase/counterparts", compiled.find_counterparts, None),
    ("mase/nodesAt", commands.nodes_at, None),
    ("mase/presentPlace", commands.present_place, None),
    ("mase/costRowsAt", commands.cost_rows_at, None),
    ("mase/buildForm", verilog_commands.build_form, None),
    ("mase/choices", calls.list_model_choices, None),
    ("mase/checkArgument", commands.check_argument, None),
    *((name, handler, None) for name, handler in commands.custom_requests()),
)

#: Commands that an editor may execute.
COMMANDS: dict[str, Handler] = {
    "mase.retrace": commands.retrace_files,
    "mase.restart": commands.restart_folder_workers,
    "mase.pickRoot": commands.pick_root,
    "mase.pickInputs": input_sets.pick_inputs,
    "mase.writeInputs": input_sets.write_inputs,
    "mase.applyPass": commands.apply_pass,
    "mase.choosePass": commands.choose_pass,
    "mase.undoPass": commands.undo_pass,
    "mase.redoPass": commands.redo_pass,
    "mase.resetPasses": commands.reset_passes,
    "mase.pipeline": commands.show_pipeline,
    "mase.showTransformed": commands.show_transformed,
    "mase.showCompiled": compiled.show_compiled,
    "mase.compareCompiled": compiled.compare_compiled,
    "mase.showBreaks": compiled.toggle_breaks,
    "mase.pickDevice": run_costs.pick_device,
    "mase.compareCosts": run_costs.compare_costs,
    "mase.compare": commands.compare_graphs,
    "mase.writePipeline": commands.write_pipeline,
    "mase.emitVerilog": verilog_commands.emit_verilog,
    "mase.verilogSettings": verilog_commands.verilog_settings,
    "mase.simulateVerilog": verilog_commands.simulate_verilog,
    "mase.recordWaveform": verilog_commands.record_waveform,
    "mase.saveVerilog": verilog_commands.save_verilog,
    "mase.closeVerilog": verilog_commands.close_verilog,
    "mase.showVerilogLine": verilog_commands.show_verilog_line,
    "mase.showPythonLine": verilog_commands.show_python_line,
}
