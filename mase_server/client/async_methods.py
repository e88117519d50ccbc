"""The API as methods: made by `python -m docs.client` from the server's table, not to be edited.

Every parameter that is None is left out; `mase/info` with `methods` describes all that they mean.
"""

from __future__ import annotations

from typing import Any


def _given(**params: Any) -> dict[str, Any]:
    return {key.rstrip("_"): value for key, value in params.items() if value is not None}


class AsyncMethods:
    """The methods of a client. Each is awaited."""

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float | None = None
    ) -> dict[str, Any]:
        """Any method by its name."""
        raise NotImplementedError

    async def info(self, methods: bool | None = None) -> dict[str, Any]:
        """{"name", "version", "pid", "files": the traced model files}, and with `methods`, {"methods"}: all there
        are.
        """
        return await self.call("mase/info", _given(methods=methods))

    async def models(self, path: str | None = None) -> list[dict[str, Any]]:
        """The models of the file `path`, of every traced file without it: `snapshot.MODEL_KEYS` and "path",
        "sha256".
        """
        result = await self.call("mase/models", _given(path=path))
        found: list[dict[str, Any]] = result["models"]
        return found

    async def node_at(self, path: str, line: int, column: int) -> dict[str, Any] | None:
        """The smallest place at a position, with every value seen there and the node that made it; None for no
        place.
        """
        result = await self.call("mase/nodeAt", _given(path=path, line=line, column=column))
        found: dict[str, Any] | None = result["place"]
        return found

    async def retrace(self, path: str) -> dict[str, Any]:
        """Trace `path` again whatever was known of it; its end status, as `mase/status` has it."""
        return await self.call("mase/retrace", _given(path=path))

    async def roots(self, path: str) -> list[dict[str, Any]]:
        """The models that show shapes in the file `path`: {"root", "path", "inputs_from", "found", "picked"} each."""
        result = await self.call("mase/roots", _given(path=path))
        found: list[dict[str, Any]] = result["roots"]
        return found

    async def pick_root(self, path: str, root: str | None = None) -> list[dict[str, Any]]:
        """Show in the file `path` the shapes of `root` alone where several models use a class; of all without
        `root`.
        """
        result = await self.call("mase/pickRoot", _given(path=path, root=root))
        found: list[dict[str, Any]] = result["roots"]
        return found

    async def passes(self, path: str | None = None) -> list[dict[str, Any]]:
        """The passes that there are for the file `path`, the workspace's own among them: `Pass.to_wire` each; at
        once.
        """
        result = await self.call("mase/passes", _given(path=path))
        found: list[dict[str, Any]] = result["passes"]
        return found

    async def apply_pass(
        self, path: str, pass_: str, model: str | None = None, arguments: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Apply one more pass to a model (the first without `model`); `mase/pipeline` once its errors are
        measured.
        """
        return await self.call("mase/applyPass", _given(path=path, model=model, pass_=pass_, arguments=arguments))

    async def undo_pass(self, path: str, model: str | None = None) -> dict[str, Any]:
        """Take the last pass back, or the one that is being applied; `mase/pipeline`."""
        return await self.call("mase/undoPass", _given(path=path, model=model))

    async def redo_pass(self, path: str, model: str | None = None) -> dict[str, Any]:
        """Apply again what was taken back last; `mase/pipeline`."""
        return await self.call("mase/redoPass", _given(path=path, model=model))

    async def reset_passes(self, path: str, model: str | None = None) -> dict[str, Any]:
        """Take all passes back; `mase/pipeline`."""
        return await self.call("mase/resetPasses", _given(path=path, model=model))

    async def pipeline(self, path: str, model: str | None = None) -> dict[str, Any]:
        """The passes on a model: {"model", "steps", "undone", "summary", "problem", "complete", "running"}; at
        once.
        """
        return await self.call("mase/pipeline", _given(path=path, model=model))

    async def set_pipeline(self, path: str, steps: list[str], model: str | None = None) -> dict[str, Any]:
        """Have just these steps, given as texts; `mase/pipeline`. One that fails stays, and is a warning at the
        class.
        """
        return await self.call("mase/setPipeline", _given(path=path, model=model, steps=steps))

    async def pipeline_settings(self, path: str) -> dict[str, Any]:
        """The pipelines of a file's models as the setting `mase.pipelines` has them."""
        return await self.call("mase/pipelineSettings", _given(path=path))

    async def transformed(self, path: str, model: str | None = None, original: bool | None = None) -> dict[str, Any]:
        """{"text", "language"}: the graph of a model as Python after its passes, or as it was traced (`original`)."""
        return await self.call("mase/transformed", _given(path=path, model=model, original=original))

    async def emit_verilog(
        self,
        path: str,
        model: str | None = None,
        vectors: int | None = None,
        inputs: str | None = None,
        build: dict[str, Any] | None = None,
        folder: str | None = None,
        overwrite: bool | None = None,
    ) -> dict[str, Any]:
        """Make hardware of a model: a map of `building.EMISSION_KEYS`; from then on, each save makes its text
        again.
        """
        return await self.call(
            "mase/emitVerilog",
            _given(
                path=path, model=model, vectors=vectors, inputs=inputs, build=build, folder=folder, overwrite=overwrite
            ),
        )

    async def verilog(self, path: str, model: str | None = None) -> dict[str, Any]:
        """{"model", "build", "default", "emission", "stale", "running", "problem"} of a model's hardware; at once."""
        return await self.call("mase/verilog", _given(path=path, model=model))

    async def simulate(
        self,
        path: str,
        model: str | None = None,
        vectors: int | None = None,
        inputs: str | None = None,
        stall: int | None = None,
    ) -> dict[str, Any]:
        """Simulate the hardware of a model, and compare: a map of `building.SIMULATION_KEYS`."""
        return await self.call(
            "mase/simulate", _given(path=path, model=model, vectors=vectors, inputs=inputs, stall=stall)
        )

    async def forget_verilog(self, path: str, model: str | None = None) -> dict[str, Any]:
        """Make no hardware of a model any longer; `mase/verilog`."""
        return await self.call("mase/forgetVerilog", _given(path=path, model=model))

    async def export_checkpoint(self, path: str, name: str, model: str | None = None) -> dict[str, Any]:
        """Write a model with its weights, after its passes, as `{name}.pt` and `{name}.mz`: {"files", "weights"}."""
        return await self.call("mase/exportCheckpoint", _given(path=path, model=model, name=name))

    async def import_checkpoint(self, path: str, name: str, model: str | None = None) -> dict[str, Any]:
        """Take the graph and the weights of a checkpoint in place of a model's, as one more pass; `mase/pipeline`."""
        return await self.call("mase/importCheckpoint", _given(path=path, model=model, name=name))

    async def weights(
        self,
        path: str,
        model: str | None = None,
        names: list[str] | None = None,
        original: bool | None = None,
        start: int | None = None,
        count: int | None = None,
    ) -> dict[str, Any]:
        """The parameters and buffers of a model, after its passes, as bytes: {"arrays", "total", "next",
        "weights"}.
        """
        return await self.call(
            "mase/weights", _given(path=path, model=model, names=names, original=original, start=start, count=count)
        )

    async def draw(
        self,
        path: str,
        model: str | None = None,
        original: bool | None = None,
        colours: str | None = None,
        file: str | None = None,
    ) -> dict[str, Any]:
        """The graph of a model as SVG: {"svg"}, or {"file"} where it was written to the absolute path `file`."""
        return await self.call(
            "mase/draw", _given(path=path, model=model, original=original, colours=colours, file=file)
        )

    async def open(
        self, path: str, model: str | None = None, inputs: list[str] | None = None, wait: bool | None = None
    ) -> dict[str, Any]:
        """Look at the model file `path` until `mase/close` or the connection's end: it is traced now and at every
        save.
        """
        return await self.call("mase/open", _given(path=path, model=model, inputs=inputs, wait=wait))

    async def close(self, path: str) -> dict[str, Any]:
        """Look at a file no longer: {"path", "open": does somebody else?}. What was traced stays for a while."""
        return await self.call("mase/close", _given(path=path))

    async def files(self) -> list[dict[str, Any]]:
        """Every file that somebody looks at or looked at: {"path", "folder", "open", "status"} each."""
        result = await self.call("mase/files", _given())
        found: list[dict[str, Any]] = result["files"]
        return found

    async def file_status(self, path: str) -> dict[str, Any]:
        """Where the newest trace of the file `path` is: `daemon.status.Status` as a map."""
        return await self.call("mase/fileStatus", _given(path=path))

    async def inputs(self, path: str) -> list[dict[str, Any]]:
        """With which inputs the models of a file are traced: {"model", "inputs", "inputs_from", "found", "text"}
        each.
        """
        result = await self.call("mase/inputs", _given(path=path))
        found: list[dict[str, Any]] = result["inputs"]
        return found

    async def set_inputs(self, path: str, inputs: list[str], model: str | None = None) -> dict[str, Any]:
        """Trace a file with other inputs, from now on: texts such as "x: f32[1, 3, 224, 224]"; [] finds them
        again.
        """
        return await self.call("mase/setInputs", _given(path=path, inputs=inputs, model=model))

    async def graph(
        self,
        path: str,
        model: str | None = None,
        scope: str | None = None,
        start: int | None = None,
        count: int | None = None,
        columns: list[str] | None = None,
    ) -> dict[str, Any]:
        """The graph of a model as columns, in order of execution: all of it, of a module (`scope`), or a page of
        it.
        """
        return await self.call(
            "mase/graph", _given(path=path, model=model, scope=scope, start=start, count=count, columns=columns)
        )

    async def tensors(
        self, path: str, first: int | None = None, last: int | None = None, all: bool | None = None
    ) -> dict[str, Any]:
        """The tensors of a source file, line by line: {"path", "sha256", "stale", "sites", "next"}."""
        return await self.call("mase/tensors", _given(path=path, first=first, last=last, all=all))

    async def problems(self, path: str | None = None) -> list[dict[str, Any]]:
        """The problems in a source file, in all traced files without `path`: `snapshot.Problem` as maps."""
        result = await self.call("mase/problems", _given(path=path))
        found: list[dict[str, Any]] = result["problems"]
        return found

    async def costs(self, path: str, model: str | None = None) -> dict[str, Any]:
        """What a model costs: {"model", "nodes", "flops", "parameters", "parameter_bytes", "modules",
        "operators"}.
        """
        return await self.call("mase/costs", _given(path=path, model=model))

    async def compare(self, path: str, model: str | None = None, other: dict[str, Any] | None = None) -> dict[str, Any]:
        """How a model differs from another (`other`: {"path", "model"?}), or, without it, from itself before its
        passes.
        """
        return await self.call("mase/compare", _given(path=path, model=model, other=other))

    async def traced(
        self, path: str, all: bool | None = None, passes: bool | None = None, first: int | None = None
    ) -> dict[str, Any]:
        """What the trace of the newest text of the model file `path` tells of that file; other files' traces add
        nothing.
        """
        return await self.call("mase/traced", _given(path=path, all=all, passes=passes, first=first))

    async def workers(self) -> list[dict[str, Any]]:
        """The live trace children: {"path", "folder", "pid", "memory" (bytes), "generation", "idle" (seconds)}
        each.
        """
        result = await self.call("mase/workers", _given())
        found: list[dict[str, Any]] = result["workers"]
        return found

    async def restart_workers(self, folder: str | None = None) -> dict[str, Any]:
        """End the processes of `folder`, of all without it, and trace what is open again: {"folders"} concerned."""
        return await self.call("mase/restartWorkers", _given(folder=folder))

    async def statistics(self) -> dict[str, Any]:
        """{"pid", "memory": resident bytes of the server alone, "files", "open", "states", "live", "nodes",
        "requests"}.
        """
        return await self.call("mase/statistics", _given())

    async def session(self, errors: str | None = None) -> dict[str, Any]:
        """How this connection is spoken to: {"errors"}. errors: "map", or "pair" for clients that know [0, text]
        alone.
        """
        return await self.call("mase/session", _given(errors=errors))

    async def subscribe(self, topics: list[str] | None = None, path: str | None = None) -> dict[str, Any]:
        """Be sent `mase/event` notifications: {"subscription": number, "topics"}."""
        return await self.call("mase/subscribe", _given(topics=topics, path=path))

    async def unsubscribe(self, subscription: int) -> dict[str, Any]:
        """Be sent no more of them: {"ended": was there such a subscription?}."""
        return await self.call("mase/unsubscribe", _given(subscription=subscription))
