"""The API as methods: made by `python -m docs.client` from the server's table, not to be edited.

Every parameter that is None is left out; `mase/info` with `methods` describes all that they mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mase_server.answers import (
        Checkpoint,
        Closed,
        Comparison,
        Costs,
        CostTable,
        Drawing,
        Emission,
        File,
        FileStatus,
        Graph,
        Info,
        InputComparison,
        Inputs,
        InputTrial,
        Model,
        Pass,
        Pipeline,
        Place,
        Problem,
        Restarted,
        Root,
        Session,
        Simulation,
        Statistics,
        Status,
        Subscription,
        Tensors,
        Text,
        Traced,
        Unsubscribed,
        Verilog,
        Weights,
        Worker,
    )


def _given(**params: Any) -> dict[str, Any]:
    return {key.rstrip("_"): value for key, value in params.items() if value is not None}


class AsyncMethods:
    """The methods of a client. Each is awaited."""

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Any method by its name."""
        raise NotImplementedError

    async def info(self, methods: bool | None = None) -> Info:
        """{"name", "version", "pid", "files": the traced model files}, and with `methods`, {"methods"}: all there
        are.
        """
        result = await self.call("mase/info", _given(methods=methods))
        return cast("Info", result)

    async def models(self, path: str | None = None) -> list[Model]:
        """The models of the file `path`, of every traced file without it: `snapshot.MODEL_KEYS` and "path",
        "sha256".
        """
        result = await self.call("mase/models", _given(path=path))
        return cast("list[Model]", result["models"])

    async def node_at(self, path: str, line: int, column: int) -> Place | None:
        """The smallest place at a position, with every value seen there and the node that made it; None for no
        place.
        """
        result = await self.call("mase/nodeAt", _given(path=path, line=line, column=column))
        return cast("Place | None", result["place"])

    async def retrace(self, path: str) -> Status:
        """Trace `path` again whatever was known of it; its end status, as `mase/status` has it."""
        result = await self.call("mase/retrace", _given(path=path))
        return cast("Status", result)

    async def roots(self, path: str) -> list[Root]:
        """The models that show shapes in the file `path`: {"root", "path", "inputs_from", "found", "picked"} each."""
        result = await self.call("mase/roots", _given(path=path))
        return cast("list[Root]", result["roots"])

    async def pick_root(self, path: str, root: str | None = None) -> list[Root]:
        """Show in the file `path` the shapes of `root` alone where several models use a class; of all without
        `root`.
        """
        result = await self.call("mase/pickRoot", _given(path=path, root=root))
        return cast("list[Root]", result["roots"])

    async def passes(self, path: str | None = None) -> list[Pass]:
        """The passes that there are for the file `path`, the workspace's own among them: `Pass.to_wire` each; at
        once.
        """
        result = await self.call("mase/passes", _given(path=path))
        return cast("list[Pass]", result["passes"])

    async def apply_pass(
        self, path: str, pass_: str, model: str | None = None, arguments: dict[str, Any] | None = None
    ) -> Pipeline:
        """Apply one more pass to a model (the first without `model`); `mase/pipeline` once its errors are
        measured.
        """
        result = await self.call("mase/applyPass", _given(path=path, model=model, pass_=pass_, arguments=arguments))
        return cast("Pipeline", result)

    async def undo_pass(self, path: str, model: str | None = None) -> Pipeline:
        """Take the last pass back, or the one that is being applied; `mase/pipeline`."""
        result = await self.call("mase/undoPass", _given(path=path, model=model))
        return cast("Pipeline", result)

    async def redo_pass(self, path: str, model: str | None = None) -> Pipeline:
        """Apply again what was taken back last; `mase/pipeline`."""
        result = await self.call("mase/redoPass", _given(path=path, model=model))
        return cast("Pipeline", result)

    async def reset_passes(self, path: str, model: str | None = None) -> Pipeline:
        """Take all passes back; `mase/pipeline`."""
        result = await self.call("mase/resetPasses", _given(path=path, model=model))
        return cast("Pipeline", result)

    async def pipeline(self, path: str, model: str | None = None) -> Pipeline:
        """The passes on a model: {"model", "steps", "undone", "summary", "problem", "complete", "running"}; at
        once.
        """
        result = await self.call("mase/pipeline", _given(path=path, model=model))
        return cast("Pipeline", result)

    async def set_pipeline(self, path: str, steps: list[str], model: str | None = None) -> Pipeline:
        """Have just these steps, given as texts; `mase/pipeline`. One that fails stays, and is a warning at the
        class.
        """
        result = await self.call("mase/setPipeline", _given(path=path, model=model, steps=steps))
        return cast("Pipeline", result)

    async def pipeline_settings(self, path: str) -> dict[str, list[str]]:
        """The pipelines of a file's models as the setting `mase.pipelines` has them."""
        result = await self.call("mase/pipelineSettings", _given(path=path))
        return cast("dict[str, list[str]]", result)

    async def transformed(self, path: str, model: str | None = None, original: bool | None = None) -> Text:
        """{"text", "language"}: the graph of a model as Python after its passes, or as it was traced (`original`)."""
        result = await self.call("mase/transformed", _given(path=path, model=model, original=original))
        return cast("Text", result)

    async def emit_verilog(
        self,
        path: str,
        model: str | None = None,
        vectors: int | None = None,
        inputs: str | None = None,
        build: dict[str, Any] | None = None,
        folder: str | None = None,
        overwrite: bool | None = None,
    ) -> Emission:
        """Make hardware of a model: a map of `building.EMISSION_KEYS`; from then on, each save makes its text
        again.
        """
        result = await self.call(
            "mase/emitVerilog",
            _given(
                path=path, model=model, vectors=vectors, inputs=inputs, build=build, folder=folder, overwrite=overwrite
            ),
        )
        return cast("Emission", result)

    async def verilog(self, path: str, model: str | None = None) -> Verilog:
        """{"model", "build", "default", "emission", "stale", "running", "problem"} of a model's hardware; at once."""
        result = await self.call("mase/verilog", _given(path=path, model=model))
        return cast("Verilog", result)

    async def simulate(
        self,
        path: str,
        model: str | None = None,
        vectors: int | None = None,
        inputs: str | None = None,
        stall: int | None = None,
    ) -> Simulation:
        """Simulate the hardware of a model, and compare: a map of `building.SIMULATION_KEYS`."""
        result = await self.call(
            "mase/simulate", _given(path=path, model=model, vectors=vectors, inputs=inputs, stall=stall)
        )
        return cast("Simulation", result)

    async def forget_verilog(self, path: str, model: str | None = None) -> Verilog:
        """Make no hardware of a model any longer; `mase/verilog`."""
        result = await self.call("mase/forgetVerilog", _given(path=path, model=model))
        return cast("Verilog", result)

    async def export_checkpoint(self, path: str, name: str, model: str | None = None) -> Checkpoint:
        """Write a model with its weights, after its passes, as `{name}.pt` and `{name}.mz`: {"files", "weights"}."""
        result = await self.call("mase/exportCheckpoint", _given(path=path, model=model, name=name))
        return cast("Checkpoint", result)

    async def import_checkpoint(self, path: str, name: str, model: str | None = None) -> Pipeline:
        """Take the graph and the weights of a checkpoint in place of a model's, as one more pass; `mase/pipeline`."""
        result = await self.call("mase/importCheckpoint", _given(path=path, model=model, name=name))
        return cast("Pipeline", result)

    async def weights(
        self,
        path: str,
        model: str | None = None,
        names: list[str] | None = None,
        original: bool | None = None,
        start: int | None = None,
        count: int | None = None,
    ) -> Weights:
        """The parameters and buffers of a model, after its passes, as bytes: {"arrays", "total", "next",
        "weights"}.
        """
        result = await self.call(
            "mase/weights", _given(path=path, model=model, names=names, original=original, start=start, count=count)
        )
        return cast("Weights", result)

    async def draw(
        self,
        path: str,
        model: str | None = None,
        original: bool | None = None,
        colours: str | None = None,
        file: str | None = None,
    ) -> Drawing:
        """The graph of a model as SVG: {"svg"}, or {"file"} where it was written to the absolute path `file`,
        which ends in .svg. An older drawing is replaced; a link or anything else that is no file is refused.
        """
        result = await self.call(
            "mase/draw", _given(path=path, model=model, original=original, colours=colours, file=file)
        )
        return cast("Drawing", result)

    async def open(
        self, path: str, model: str | None = None, inputs: list[str] | None = None, wait: bool | None = None
    ) -> FileStatus:
        """Look at the model file `path` until `mase/close` or the connection's end: it is traced now and at every
        save.
        """
        result = await self.call("mase/open", _given(path=path, model=model, inputs=inputs, wait=wait))
        return cast("FileStatus", result)

    async def close(self, path: str) -> Closed:
        """Look at a file no longer: {"path", "open": does somebody else?}. What was traced stays for a while."""
        result = await self.call("mase/close", _given(path=path))
        return cast("Closed", result)

    async def files(self) -> list[File]:
        """Every file that somebody looks at or looked at: {"path", "folder", "open", "status"} each."""
        result = await self.call("mase/files", _given())
        return cast("list[File]", result["files"])

    async def file_status(self, path: str) -> FileStatus:
        """Where the newest trace of the file `path` is: `daemon.status.Status` as a map."""
        result = await self.call("mase/fileStatus", _given(path=path))
        return cast("FileStatus", result)

    async def inputs(self, path: str) -> list[Inputs]:
        """With which inputs a file's models are traced: {"model", "inputs", "inputs_from", "found", "text",
        "sets", "set"}.
        """
        result = await self.call("mase/inputs", _given(path=path))
        return cast("list[Inputs]", result["inputs"])

    async def set_inputs(self, path: str, inputs: list[str], model: str | None = None) -> Status:
        """Trace a file with other inputs, from now on: texts such as "x: f32[1, 3, 224, 224]"; [] finds them
        again.
        """
        result = await self.call("mase/setInputs", _given(path=path, inputs=inputs, model=model))
        return cast("Status", result)

    async def pick_inputs(self, path: str, model: str | None = None, set: str | None = None) -> list[Inputs]:
        """Trace a model with a named set of inputs from now on: `mase/inputs` once it is traced."""
        result = await self.call("mase/pickInputs", _given(path=path, model=model, set=set))
        return cast("list[Inputs]", result["inputs"])

    async def try_inputs(
        self,
        path: str,
        model: str | None = None,
        set: str | None = None,
        inputs: dict[str, Any] | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> InputTrial:
        """What would come of a set of inputs, traced beside what is shown: "form", "problems", and the figures of
        `told`.
        """
        result = await self.call(
            "mase/tryInputs", _given(path=path, model=model, set=set, inputs=inputs, arguments=arguments)
        )
        return cast("InputTrial", result)

    async def compare_inputs(self, path: str, sets: list[str], model: str | None = None) -> InputComparison:
        """How a model differs with two sets of inputs: {"path", "model", "before", "after", "rows", "problems"}."""
        result = await self.call("mase/compareInputs", _given(path=path, model=model, sets=sets))
        return cast("InputComparison", result)

    async def graph(
        self,
        path: str,
        model: str | None = None,
        scope: str | None = None,
        start: int | None = None,
        count: int | None = None,
        columns: list[str] | None = None,
    ) -> Graph:
        """The graph of a model as columns, in order of execution: all of it, of a module (`scope`), or a page of
        it.
        """
        result = await self.call(
            "mase/graph", _given(path=path, model=model, scope=scope, start=start, count=count, columns=columns)
        )
        return cast("Graph", result)

    async def tensors(
        self, path: str, first: int | None = None, last: int | None = None, all: bool | None = None
    ) -> Tensors:
        """The tensors of a source file, line by line: {"path", "sha256", "stale", "sites", "next"}."""
        result = await self.call("mase/tensors", _given(path=path, first=first, last=last, all=all))
        return cast("Tensors", result)

    async def problems(self, path: str | None = None) -> list[Problem]:
        """The problems in a source file, in all traced files without `path`: `snapshot.Problem` as maps."""
        result = await self.call("mase/problems", _given(path=path))
        return cast("list[Problem]", result["problems"])

    async def costs(self, path: str, model: str | None = None) -> Costs:
        """What a model costs: {"model", "nodes", "flops", "parameters", "parameter_bytes", "modules",
        "operators"}.
        """
        result = await self.call("mase/costs", _given(path=path, model=model))
        return cast("Costs", result)

    async def compare(self, path: str, model: str | None = None, other: dict[str, Any] | None = None) -> Comparison:
        """How a model differs from another (`other`: {"path", "model"?}), or, without it, from itself before its
        passes.
        """
        result = await self.call("mase/compare", _given(path=path, model=model, other=other))
        return cast("Comparison", result)

    async def cost_table(self, path: str, model: str | None = None) -> CostTable:
        """What each module, operator and parameter of a model costs: {"path", "model", ..., "rows"}; see
        `answers`.
        """
        result = await self.call("mase/costTable", _given(path=path, model=model))
        return cast("CostTable", result)

    async def traced(
        self, path: str, all: bool | None = None, passes: bool | None = None, first: int | None = None
    ) -> Traced:
        """What the trace of the newest text of the model file `path` tells of that file; other files' traces add
        nothing.
        """
        result = await self.call("mase/traced", _given(path=path, all=all, passes=passes, first=first))
        return cast("Traced", result)

    async def workers(self) -> list[Worker]:
        """The live trace children: {"path", "folder", "pid", "memory" (bytes), "generation", "idle" (seconds)}
        each.
        """
        result = await self.call("mase/workers", _given())
        return cast("list[Worker]", result["workers"])

    async def restart_workers(self, folder: str | None = None) -> Restarted:
        """End the processes of `folder`, of all without it, and trace what is open again: {"folders"} concerned."""
        result = await self.call("mase/restartWorkers", _given(folder=folder))
        return cast("Restarted", result)

    async def statistics(self) -> Statistics:
        """What the daemon counts, in a fixed amount of memory; `answers.Statistics` says what each key means."""
        result = await self.call("mase/statistics", _given())
        return cast("Statistics", result)

    async def session(self, errors: str | None = None) -> Session:
        """How this connection is spoken to: {"errors"}. errors: "map", or "pair" for clients that know [0, text]
        alone.
        """
        result = await self.call("mase/session", _given(errors=errors))
        return cast("Session", result)

    async def subscribe(self, topics: list[str] | None = None, path: str | None = None) -> Subscription:
        """Be sent `mase/event` notifications: {"subscription": number, "topics"}."""
        result = await self.call("mase/subscribe", _given(topics=topics, path=path))
        return cast("Subscription", result)

    async def unsubscribe(self, subscription: int) -> Unsubscribed:
        """Be sent no more of them: {"ended": was there such a subscription?}."""
        result = await self.call("mase/unsubscribe", _given(subscription=subscription))
        return cast("Unsubscribed", result)
