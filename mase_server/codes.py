"""Every code that a diagnostic may have: what it means, and what to do. Links are those of `docs/reference`."""

from __future__ import annotations

#: code -> (what it means, the next step)
CODES: dict[str, tuple[str, str]] = {
    "attribute-error": (
        "An object has no attribute of this name; a similar name that it has is told.",
        "Take the quick fix, or define the attribute in `__init__`.",
    ),
    "bad-comment": (
        "A `# mase:` comment could not be read; the message says what was expected at the marked place.",
        "Mend the comment; [its form](comments.md).",
    ),
    "bad-inputs": (
        "The inputs that a setting or the command line gives could not be read.",
        "Mend the setting `mase.inputs`, or `--input`; [the form of inputs](comments.md).",
    ),
    "constructor-error": (
        "The constructor of the model raised.",
        "Mend it, or say other arguments in a comment above the class: `# mase: Net(width=3)`.",
    ),
    "crashed": (
        "The process that ran the file died of a signal, for example of a fault in native code.",
        "Look at the line it was at. The file is traced again when it changes, or on the command `mase.retrace`.",
    ),
    "device-mismatch": (
        "A tensor that the forward uses is a plain attribute, which `.to(device)` leaves where it is.",
        "Take the quick fix: a buffer moves with its module.",
    ),
    "dtype-mismatch": (
        "An operation was given element types that it does not take together.",
        "Convert one of the tensors, for example with `.to(torch.float32)`, or take the quick fix.",
    ),
    "exception": (
        "The traced code raised in a way that nothing more is known of.",
        "Mend the line that is marked.",
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
        "The model's forward raised; shapes up to the line are shown.",
        "Mend the line; the message repeats the shapes that it was given.",
    ),
    "import-error": (
        "A statement at the file's top raised, or it imports a name that is not there. What does not depend on it is "
        "shown all the same.",
        'Mend it, or put it under `if __name__ == "__main__":` if no model needs it.',
    ),
    "import-failed": (
        "The interpreter cannot start tracing, for example because its torch cannot be imported.",
        "Mend that environment, or choose another one: setting `mase.interpreter`.",
    ),
    "index-error": (
        "An index is too large for what it indexes: a token for its vocabulary, a class for the number of classes.",
        "Make the table larger, or the index smaller.",
    ),
    "internal-error": (
        "The server itself failed while it traced the file. Other files are not touched.",
        "Save again; the server's log has the details for a report.",
    ),
    "memory-limit": (
        "Tracing used more memory than it may, or than the container has in which the server runs, and was stopped at "
        "the line that is marked.",
        "If it only needs more, raise the setting `mase.limits.memory`, or give the container more.",
    ),
    "missing-forward": (
        "A module is called that has no forward.",
        "Define `def forward(self, ...)`; loop over a `ModuleList`, or make it an `nn.Sequential`.",
    ),
    "missing-package": (
        "The file, or one that it imports, wants a package that its interpreter does not have, or not in this version. "
        "As a warning at the import: what does without it is shown. As an error: it is really needed at that line.",
        "Install it there: the message has the command.",
    ),
    "name-error": (
        "A name is not defined where it is used; a similar one that is known there is told.",
        "Take the quick fix, or define or import the name.",
    ),
    "no-arguments": (
        "No arguments were found with which the class can be constructed.",
        "Say them in a comment above the class: `# mase: Net(width=3)`.",
    ),
    "no-environment": (
        "No interpreter of the folder can trace; the message lists what was tried.",
        "Choose one: setting `mase.interpreter`, or `--python`.",
    ),
    "no-hardware": (
        "An operator of a model that hardware is made of has no component. The hardware of all else is shown.",
        "Take another operator, or build a part of the model alone, without it; docs/hardware.md lists what there is.",
    ),
    "no-inputs": (
        "No inputs were found with which the forward succeeds.",
        "Say them in a comment above the class: `# mase: x: f32[1, 784]`.",
    ),
    "no-interpreter": (
        "The chosen interpreter does not start.",
        "Choose another one: setting `mase.interpreter`.",
    ),
    "no-model": (
        "No class of the file extends `torch.nn.Module`, and running the file called no model.",
        "Nothing, if none is meant. Else name the class that is meant, or say how it is made in a comment.",
    ),
    "no-torch": (
        "The interpreter has no torch.",
        "Install torch there, or choose another interpreter: setting `mase.interpreter`.",
    ),
    "not-text": (
        "The file is no text.",
        "Save it as text; it is read again then.",
    ),
    "pass-failed": (
        "A pass of the model's pipeline could not be applied to the present text; what those before it made is shown.",
        "Undo it, mend what the message says, or change the setting `mase.pipelines`.",
    ),
    "process-limit": (
        "The code started more than a hundred processes while it was traced, and was stopped with all of them.",
        "Start fewer, or none while the file is imported and a model is built or run.",
    ),
    "python-too-old": (
        "The interpreter is older than Python 3.11.",
        "Choose another one: setting `mase.interpreter`.",
    ),
    "recursion": (
        "The code recurses without end; the message names the functions of the cycle.",
        "Give it a case that ends it.",
    ),
    "refused": (
        "The file wanted something that is refused while it is traced, such as the network or deleting a file.",
        'If no model needs it, put it under `if __name__ == "__main__":`.',
    ),
    "shape-mismatch": (
        "An operation or a layer was given sizes that do not fit; the message names them.",
        "Mend one of the two, or take the quick fix.",
    ),
    "superseded": (
        "A newer text of the file was asked for before this one was traced.",
        "Nothing: the newer one is traced.",
    ),
    "syntax-error": (
        "Python cannot parse the file.",
        "Mend the marked place.",
    ),
    "system-limit": (
        "The system refuses what a trace needs: open files, processes, memory, or room in the temporary folder.",
        "Do what the message says, and save again.",
    ),
    "time-limit": (
        "Importing and tracing took longer than it may, and was stopped at the line that is marked.",
        "If it only needs longer, raise the setting `mase.limits.seconds`; turn `mase.runMain` off to leave the "
        "file's own run out.",
    ),
    "torch-too-old": (
        "The interpreter's torch is older than 2.6.",
        "Upgrade it there, or choose another interpreter: setting `mase.interpreter`.",
    ),
    "type-error": (
        "A value is not what it is used as: a tuple that was not taken apart, None, a layer instead of what it gives, "
        "or an argument that the callee does not have.",
        "Take the quick fix, or do what the message says.",
    ),
    "unknown-encoding": (
        "The bytes of the file are not in the encoding that it names, or Python does not know that encoding.",
        "Save the file as UTF-8, or name its encoding in the first line.",
    ),
    "unreadable": (
        "The file is not read: it is a directory, a pipe, a device or a link that leads nowhere, it may not be read, "
        "it is too large, or it is not there any more.",
        "Do what the message says. The file is traced again as soon as it can be read.",
    ),
    "untrusted": (
        "The folder is not trusted, so that nothing of it is run.",
        "Trust it in the editor, or with `mase-server trust PATH`.",
    ),
    "value-dependent": (
        "What follows depends on the numbers in a tensor, not only on its shape; the shapes after it are unknown.",
        "Nothing, if that is meant. A model too big to be run with numbers: say a smaller one in a comment.",
    ),
    "value-taken": (
        "The forward looked at a value of its data here and went on by the answer; the trace shows that way alone.",
        "Nothing, if it is the way that you want to see; else give other values with a `# mase:` comment.",
    ),
    "verilog-failed": (
        "Hardware is made of this model at every save, and of the present text none can be made; the last one stays "
        "shown, and is out of date.",
        "Mend what the message says, or take the build back: `mase/forgetVerilog`.",
    ),
    "verilog-refused": (
        "The hardware of this model would be larger than what is asked for, or than the settings allow. Its estimate "
        "is told, and no Verilog.",
        "Change the build, raise `mase.verilog.maxMultipliers` or `mase.verilog.maxMemoryBits`, or build one of the "
        "named parts alone.",
    ),
}  # fmt: skip
