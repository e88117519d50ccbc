"""Every code of a diagnostic: its meaning, and what to do. Links are relative to `docs/reference`."""

from __future__ import annotations

from typing import Literal

#: code -> the step of a trace that decides it; of other codes, `LINE` does.
STEPS: dict[str, str] = {
    "bad-comment": "the reading of the comments",
    "bad-inputs": "the reading of the given inputs",
    "constructor-error": "the construction of the model",
    "crashed": "the watch over the worker",
    "exited": "the watch over the worker",
    "import-error": "the import of the file",
    "import-failed": "the choice of the interpreter",
    "internal-error": "the server",
    "memory-limit": "the watch over the worker",
    "missing-package": "the import of the file",
    "no-arguments": "the search for constructor arguments",
    "no-environment": "the choice of the interpreter",
    "no-inputs": "the search for inputs",
    "no-interpreter": "the choice of the interpreter",
    "no-model": "the search for models",
    "no-torch": "the choice of the interpreter",
    "not-text": "the reading of the file",
    "process-limit": "the watch over the worker",
    "python-too-old": "the choice of the interpreter",
    "syntax-error": "the reading of the file",
    "system-limit": "the start of the worker",
    "time-limit": "the limit of time",
    "torch-too-old": "the choice of the interpreter",
    "unknown-encoding": "the reading of the file",
    "unreadable": "the reading of the file",
}  # fmt: skip
LINE = "the run of this line"
#: Codes that say what a trace lacked, and not that the code is wrong: `check` calls a file "not checked" for them.
LACKS = frozenset({
    "crashed", "exited", "internal-error", "memory-limit", "missing-package", "missing-resource", "no-arguments",
    "no-inputs", "no-model", "process-limit", "refused", "system-limit", "time-limit", "value-dependent",
})  # fmt: skip
#: code -> (its meaning, the next step)
CODES: dict[str, tuple[str, str]] = {
    "attribute-error": (
        "An object has no attribute of this name; the message names a similar one.",
        "Take the quick fix, or define the attribute in `__init__`.",
    ),
    "bad-comment": (
        "A `# mase:` comment could not be read; the message says what was expected at the marked place.",
        "Correct the comment; [its form](comments.md).",
    ),
    "bad-inputs": (
        "The inputs that a setting or the command line gives could not be read.",
        "Correct the setting `mase.inputs`, or `--input`; [the form of inputs](comments.md).",
    ),
    "constructor-error": (
        "The constructor of the model raised an exception.",
        "Correct it, or give other arguments in a comment above the class: `# mase: Net(width=3)`.",
    ),
    "crashed": (
        "The process that ran the file was ended by a signal, for example after a fault in native code.",
        "Look at the line where it ended. The file is traced again when it changes, or on the command `mase.retrace`.",
    ),
    "device-mismatch": (
        "A tensor that the forward uses is a plain attribute, which `.to(device)` does not move.",
        "Take the quick fix: a buffer moves with its module.",
    ),
    "dtype-mismatch": (
        "An operation got element types that it cannot combine.",
        "Convert one of the tensors, for example with `.to(torch.float32)`, or take the quick fix.",
    ),
    "exception": (
        "The traced code raised an exception that MASE cannot explain further.",
        "Correct the marked line.",
    ),
    "exited": (
        "The code ended its own process, with `sys.exit`, `os._exit` or the like.",
        'Put it under `if __name__ == "__main__":`, or raise an exception.',
    ),
    "failed": (
        "The file could not be traced; the message says why.",
        "Do what the message says, and save.",
    ),
    "forward-error": (
        "The model's forward raised an exception; the shapes up to that line are shown.",
        "Correct the line; the message gives the shapes of its operands.",
    ),
    "graph-break": (
        "torch.compile ends its graph at this line and runs Python there; told only where it is asked for.",
        "Take the quick fix, if there is one, or follow the advice; [compilers](../compiled.md).",
    ),
    "import-error": (
        "A statement at the file's top raised an exception, or it imports a name that does not exist. Code that "
        "does not depend on it is still analysed.",
        'Correct it, or put it under `if __name__ == "__main__":` if no model needs it.',
    ),
    "import-failed": (
        "The interpreter cannot start tracing, for example because its torch cannot be imported.",
        "Repair that environment, or choose another one: setting `mase.interpreter`.",
    ),
    "index-error": (
        "An index is too large for its table: a token for its vocabulary, a class for the number of classes.",
        "Make the table larger, or the index smaller.",
    ),
    "internal-error": (
        "The server itself failed while it traced the file. Other files are not affected.",
        "Save again; the server's log has the details for a report.",
    ),
    "memory-limit": (
        "Tracing used more memory than allowed, or than the server's container has, and was stopped at "
        "the marked line.",
        "If it only needs more, raise the setting `mase.limits.memory`, or give the container more.",
    ),
    "missing-forward": (
        "The code calls a module that has no forward, or one whose forward is no function.",
        "Define `def forward(self, ...)`; loop over a `ModuleList`, or make it an `nn.Sequential`.",
    ),
    "missing-package": (
        "The file, or one that it imports, needs a package that its interpreter lacks, or has in another version. "
        "As a warning at the import: code that does not need it is still analysed. As an error: that line needs it.",
        "Install it there: the message has the command.",
    ),
    "missing-resource": (
        "The code needs something from outside that is not here: a file, a download, a device, a program, an "
        "environment variable, or an argument of the command line. That is no mistake of the code.",
        'Supply it, or put the line under `if __name__ == "__main__":` if no model needs it.',
    ),
    "name-error": (
        "A name is not defined where it is used; the message names a similar one.",
        "Take the quick fix, or define or import the name.",
    ),
    "no-arguments": (
        "MASE found no arguments that construct the class.",
        "Give them in a comment above the class: `# mase: Net(width=3)`.",
    ),
    "no-environment": (
        "No interpreter of the folder can trace; the message lists what was tried.",
        "Choose one: setting `mase.interpreter`, or `--python`.",
    ),
    "no-hardware": (
        "An operator of a model that is emitted as hardware has no component. The other hardware is shown.",
        "Use another operator, or build a part of the model without it; docs/hardware.md lists the components.",
    ),
    "no-inputs": (
        "MASE found no inputs with which the forward succeeds.",
        "Give them in a comment above the class: `# mase: x: f32[1, 784]`.",
    ),
    "no-interpreter": (
        "The chosen interpreter does not start.",
        "Choose another one: setting `mase.interpreter`.",
    ),
    "no-model": (
        "No class of the file extends `torch.nn.Module`, and running the file called no model.",
        "Nothing, if the file has no model. Otherwise name the class, or how it is made, in a comment.",
    ),
    "no-torch": (
        "The interpreter has no torch.",
        "Install torch there, or choose another interpreter: setting `mase.interpreter`.",
    ),
    "not-exported": (
        "torch.export cannot export the model; told only with `check --fail-on export`.",
        "The message has the exporter's reasons; `mase-server compile --view export` shows more.",
    ),
    "not-run": (
        "Code of a shown model did not run with its inputs; it is faded because the setting `mase.dimNotRun` is on.",
        "Nothing; for other inputs, write a `# mase:` comment above the class.",
    ),
    "not-text": (
        "The file is not a text file.",
        "Save it as text; it is then read again.",
    ),
    "pass-failed": (
        "A pass of the model's pipeline could not be applied to the present text; the result before it is shown.",
        "Undo it, correct what the message names, or change the setting `mase.pipelines`.",
    ),
    "process-limit": (
        "The code started more than a hundred processes during the trace, and all of them were stopped.",
        "Start fewer, or none while the file is imported or a model is built or run.",
    ),
    "python-too-old": (
        "The interpreter is older than Python 3.11.",
        "Choose another one: setting `mase.interpreter`.",
    ),
    "recompilation": (
        "torch.compile compiles a function again for another size or value, which this line asked for; told only where "
        "it is asked for.",
        "Nothing, if few sizes occur; else mark the dimension as dynamic (`torch._dynamo.mark_dynamic`).",
    ),
    "recursion": (
        "The code recurses without end; the message names the functions of the cycle.",
        "Add a case that ends the recursion.",
    ),
    "refused": (
        "The file tried something that is refused during a trace, such as network access or deleting a file.",
        'If no model needs it, put it under `if __name__ == "__main__":`.',
    ),
    "shape-mismatch": (
        "An operation or a layer got sizes that do not fit; the message names them.",
        "Correct one of the two, or take the quick fix.",
    ),
    "superseded": (
        "A newer text of the file replaced this one before it was traced.",
        "Nothing: the newer one is traced.",
    ),
    "syntax-error": (
        "Python cannot parse the file.",
        "Correct the marked place.",
    ),
    "system-limit": (
        "The system refuses a resource that a trace needs: open files, processes, memory, or temporary disk space.",
        "Do what the message says, and save again.",
    ),
    "time-limit": (
        "Importing and tracing took longer than allowed and was stopped at the marked line, or before the marked "
        "class and those after it were made.",
        "If it only needs more time, raise the setting `mase.limits.seconds`; turn `mase.runMain` off to leave the "
        "file's own run out.",
    ),
    "too-much-memory": (
        "The model holds more memory at its peak than `check --max-memory` allows; told only with that option.",
        "Look with `mase-server costs` which lines hold it; [costs](../costs.md#on-a-device).",
    ),
    "torch-too-old": (
        "The interpreter's torch is older than 2.6.",
        "Upgrade it there, or choose another interpreter: setting `mase.interpreter`.",
    ),
    "type-error": (
        "A value has the wrong type for its use: a tuple that was not unpacked, None, a layer instead of its result, "
        "or an argument that the callee does not take.",
        "Take the quick fix, or do what the message says.",
    ),
    "unknown-encoding": (
        "The bytes of the file are not in the encoding that it names, or Python does not know that encoding.",
        "Save the file as UTF-8, or name its encoding in the first line.",
    ),
    "unreadable": (
        "The file is not read: it is a directory, a pipe, a device or a broken link, it is not readable, "
        "it is too large, or it was deleted.",
        "Do what the message says. The file is traced again as soon as it can be read.",
    ),
    "untrusted": (
        "The folder is not trusted, so none of its code is run.",
        "Trust it in the editor, or with `mase-server trust PATH`.",
    ),
    "value-dependent": (
        "The following code depends on the values in a tensor, not only on its shape; the shapes after it are unknown.",
        "Nothing, if that is intended. If the model is too big to run with values, name a smaller one in a comment.",
    ),
    "value-taken": (
        "The forward branches here on a value of its data; the trace shows only the branch taken.",
        "Nothing, if it is the branch that you want to see; otherwise give other values with a `# mase:` comment.",
    ),
    "verilog-failed": (
        "Hardware of this model is emitted at every save, but the present text gives none; the last one stays "
        "shown, and is out of date.",
        "Correct what the message names, or stop emitting: `mase/forgetVerilog`.",
    ),
    "verilog-refused": (
        "The hardware of this model would be larger than requested, or than the settings allow. Its estimate "
        "is shown, but no Verilog.",
        "Change the build, raise `mase.verilog.maxMultipliers` or `mase.verilog.maxMemoryBits`, or build one of the "
        "named parts alone.",
    ),
}  # fmt: skip

#: The codes of errors that a request can end with; an error without a request has one of them, too.
ErrorCode = Literal[
    "bad-message", "cancelled", "cannot-write", "dropped", "gone", "in-editor", "internal-error", "invalid-params",
    "invalid-request", "limit", "no-graph", "not-found", "not-open", "pass-failed", "too-many", "unauthenticated",
    "unavailable", "unexpected-response", "unknown-inputs", "unknown-method", "unknown-model", "unknown-scope",
    "unsupported-protocol", "untrusted",
]  # fmt: skip
#: code -> (what happened, what a client does).
ERRORS: dict[ErrorCode, tuple[str, str]] = {
    "bad-message": (
        "The bytes are no MessagePack, or no message; the connection ends.",
        "Mend the client; connect again.",
    ),
    "cancelled": ("The request was cancelled, or the file was saved meanwhile.", "Ask again if you still want it."),
    "cannot-write": ("A file cannot be written.", "Choose another place; the message has the system's reason."),
    "dropped": ("The daemon ends the connection; the message says why.", "Read what arrives; connect again."),
    "gone": (
        "The process that held the graphs ended, or the file cannot be traced now.",
        "Call `mase/retrace`, or wait for the next `graph` event, then ask again.",
    ),
    "in-editor": ("An editor has the file open, so its text cannot be replaced.", "Leave out `text`."),
    "internal-error": ("A mistake of the daemon.", "Report it with the server's log, which has the details."),
    "invalid-params": (
        "A parameter is missing, unknown, of the wrong type, or has a value that cannot be.",
        "Mend the call; `mase/info` with `methods` has the schemas.",
    ),
    "invalid-request": ("The id belongs to a request that has no answer yet.", "Count the ids up."),
    "limit": (
        "Time or memory ran out while passes or hardware were computed.",
        "Raise the setting that the message names, or ask for less.",
    ),
    "no-graph": (
        "Nothing is shown of the file: it has no model, it fails, or it is not traced yet.",
        "Wait for `ready` in `mase/fileStatus`; its `message` has the reason, `mase/problems` the mistakes.",
    ),
    "not-found": ("There is no such file or folder.", "Check the path; it has to be absolute."),
    "not-open": ("No client has the file open, or the folder has no traced file.", "Call `mase/open` first."),
    "pass-failed": ("A pass, or what makes hardware, refused the model.", "Read the message; nothing has changed."),
    "too-many": ("The connection has as many subscriptions as it may have.", "Unsubscribe from some."),
    "unauthenticated": (
        "The first request was not `mase/authenticate`, or the token is wrong.",
        "Send the token of the daemon's token file first.",
    ),
    "unavailable": ("An editor asked for what only connections have.", "Connect to the daemon's socket."),
    "unexpected-response": ("A response arrived, but the daemon sends no requests.", "Mend the client."),
    "unknown-inputs": ("The model has no set of inputs of that name.", "`mase/inputs` lists the names."),
    "unknown-method": ("There is no such method in this version.", "`mase/info` with `methods` lists them."),
    "unknown-model": ("The file has no model of that title.", "`data.models` has the titles."),
    "unknown-scope": ("The model has no module of that path.", "`mase/graph` has the paths in `scopes`."),
    "unsupported-protocol": (
        "The daemon speaks none of the versions of the API that the client named.",
        "Update the older of the two; `data.protocols` has the daemon's.",
    ),
    "untrusted": (
        "The file's folder is not trusted, and the request would run its code.",
        "Ask the person to run `mase-server trust`; never do it for them.",
    ),
}
