"""Run some of Python's own language tests twice, plainly and instrumented; print what only the second run fails.

Run as a program: the tests change global state.  Arguments: names in the `test` package, or `module:test` to
instrument a module of the standard library and run its tests against it.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import sys
import unittest
from types import ModuleType
from typing import Any

from mase_server.tracing.importing.rewrite import instrument, provide_default


def load(name: str, *, reporting: bool) -> tuple[ModuleType, list[int]]:
    """A fresh copy of a module, and a list that grows with every report."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    reports = [0]
    if not reporting:
        spec.loader.exec_module(module)
        return module, reports
    with open(spec.origin, "rb") as file:
        instrumented = instrument(file.read(), spec.origin)

    def report(index: int, value: Any) -> Any:
        assert instrumented.sites[index]
        reports[0] += 1
        return value

    module.__dict__["__mase__"] = report
    exec(instrumented.code, module.__dict__)
    return module, reports


def failures(tests: ModuleType) -> tuple[int, list[str]]:
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
    return result.testsRun, sorted(str(test.id()) for test, _ in result.failures + result.errors)


def compare(name: str) -> dict[str, Any]:
    module, _, test = name.partition(":")
    tests = f"test.{test or module}"
    if importlib.util.find_spec(tests) is None:
        return {"skipped": True}
    ran, plain = failures(load(tests, reporting=False)[0])
    if test:
        _, reports = load(module, reporting=True)
        ran_again, broken = failures(load(tests, reporting=False)[0])
    else:
        again, reports = load(tests, reporting=True)
        ran_again, broken = failures(again)
    return {"ran": [ran, ran_again], "broken": sorted(set(broken) - set(plain)), "reports": reports[0]}


if __name__ == "__main__":
    provide_default()
    out = sys.stdout
    sys.stdout = io.StringIO()
    print(json.dumps({name: compare(name) for name in sys.argv[1:]}), file=out)
