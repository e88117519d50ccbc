"""A text in the place of another one: its functions report, have marks, and give their plain code back."""

import sys
from types import ModuleType

import pytest
import torch

from mase_server.tracing.importing.exchange import Exchange, NotExchangeableError
from mase_server.tracing.importing.importer import install, restore_plain_code
from mase_server.tracing.importing.source import pin_sources

BEFORE = """\
import torch


def first(x):
    if x.dim() > 2:
        x = x + 1
    return x


class Net:
    def forward(self, x):
        y = first(x)
        return y

    def unused(self, x):
        while x.sum() > 9:
            x = x - 9
        return x


def last(x):
    z = x * 4
    return z
"""
AFTER = BEFORE.replace("        y = first(x)\n", "        for i in (0, 1, 2, 3, 4, 5, 6, 7, 8): x = x + i\n").replace(
    "return y", "return x if i else x * 2"
)


@pytest.fixture
def loaded(tmp_path):
    """A module with the first text, its importer, and all that it reports: (line, name or "", value)."""
    path, reported = str(tmp_path / "net.py"), []
    with pin_sources(path, {path: BEFORE.encode()}):

        def reporter(file, sites):
            def report(index, value):
                reported.append((sites[index].line, sites[index].name, value))
                return value

            return report

        importer = install([str(tmp_path)], None, reporter)
        module = sys.modules["net"] = ModuleType("net")
        module.__file__ = path
        try:
            exec(importer.prepare(path, vars(module)), vars(module))
            yield module, importer, path, reported
        finally:
            del sys.modules["net"]
            importer.uninstall()


def names(reported):
    return [(line, name) for line, name, _ in reported if name]


def test_functions_report_what_the_new_text_binds(loaded):
    module, importer, path, reported = loaded
    Exchange(importer, path, BEFORE, whole=False).apply(AFTER.encode())
    assert module.Net().forward(torch.ones(2)).tolist() == [37.0, 37.0]
    assert names(reported) == [(11, "x"), *[(12, "i"), (12, "x")] * 9]
    reported.clear()
    module.last(torch.ones(2))
    assert names(reported) == [(21, "x"), (22, "z")]


def test_marks_of_other_functions_stay(loaded):
    module, importer, path, _ = loaded
    module.first(torch.ones(2))
    ran = {each.line for each, mark in zip(importer.segments[path], importer.ran[path], strict=True) if mark}
    Exchange(importer, path, BEFORE, whole=False).apply(AFTER.encode())
    module.Net().forward(torch.ones(2))
    now = {each.line for each, mark in zip(importer.segments[path], importer.ran[path], strict=True) if mark}
    assert now - ran == {12, 13}
    assert ran <= now
    assert not [each for each in importer.segments[path] if each.first_line == 11 and each.line != 12]


def test_a_text_that_is_loaded_once_more_uses_the_same_indices(loaded):
    module, importer, path, reported = loaded
    Exchange(importer, path, BEFORE, whole=False).apply(AFTER.encode())
    exec(importer.prepare(path, vars(module)), vars(module))
    module.last(torch.ones(2))
    module.Net().unused(torch.ones(2))
    assert names(reported) == [(21, "x"), (22, "z"), (15, "x")]
    ran = {each.line for each, mark in zip(importer.segments[path], importer.ran[path], strict=True) if mark}
    assert {16, 18, 22} <= ran
    assert 12 not in ran


def test_functions_give_their_plain_code_back(loaded):
    module, importer, path, _ = loaded
    Exchange(importer, path, BEFORE, whole=False).apply(AFTER.encode())
    restore_plain_code(path, [vars(module)])
    plain = ModuleType("plain")
    exec(compile(AFTER, path, "exec"), vars(plain))
    for name in ("first", "last"):
        assert getattr(module, name).__code__ == getattr(plain, name).__code__
    for name in ("forward", "unused"):
        assert getattr(module.Net, name).__code__ == getattr(plain.Net, name).__code__


def test_a_function_that_has_run_is_not_exchanged(loaded):
    module, importer, path, _ = loaded
    module.Net().forward(torch.ones(2))
    exchange = Exchange(importer, path, BEFORE, whole=False)
    assert exchange.lines == [(16, 20), (22, 24)]
    with pytest.raises(NotExchangeableError, match="outside"):
        exchange.apply(AFTER.encode())
    assert module.Net().forward(torch.ones(2)).tolist() == [1.0, 1.0]
