"""A sweep with an engine that only says what it is told to: what it asks for, keeps and tells."""

import json
import math

import pytest

from mase_server.cli import sweep as sweep_report
from mase_server.sweep.points import Point, Result, Surroundings, objectives_of
from mase_server.sweep.running import Store, Sweep, plan_sweep

OBJECTIVES = objectives_of(["sqnr", "luts"])


class Engine:
    """Gives results by the first step of a point, and notes what it was asked for."""

    def __init__(self, results):
        self.results, self.asked = results, []

    async def run(self, points):
        for point in points:
            self.asked.append(point.pipeline[0])
            result = self.results[point.pipeline[0]]
            if isinstance(result, Exception):
                raise result
            yield point, result


@pytest.fixture
def points(tmp_path):
    (tmp_path / "net.py").write_text("")
    return [Point(str(tmp_path / "net.py"), pipeline=(name,)) for name in ("a()", "b()", "c()")]


@pytest.fixture
def sweep_of(tmp_path, points):
    """A function that begins a sweep on one file of results, as another process would."""

    def begin(**more):
        around, keys = plan_sweep(points, tmp_path / "results.sqlite", None, ())
        assert isinstance(around, Surroundings)
        return Sweep(Store(tmp_path / "results.sqlite", around), keys, **more)

    return begin


def result(sqnr=None, luts=None, error="", kind="", model="Net"):
    figures = {name: value for name, value in (("sqnr", sqnr), ("luts", luts)) if value is not None}
    return Result(model, figures, error, kind)


GOOD = {"a()": result(10, 100), "b()": result(20, 200), "c()": result(5, 300)}


async def test_each_result_is_on_disk_before_it_is_told(sweep_of):
    sweep, told = sweep_of(), []

    def tell(point, found):
        told.append((point.pipeline[0], len(sweep_of().results), found))

    await sweep.run(Engine(GOOD), tell)
    assert told == [("a()", 1, GOOD["a()"]), ("b()", 2, GOOD["b()"]), ("c()", 3, GOOD["c()"])]
    assert [row.best for row in sweep.rows(OBJECTIVES)] == [True, True, False]


async def test_only_what_is_missing_is_asked_for(sweep_of):
    with pytest.raises(RuntimeError, match="the machine is on fire"):
        await sweep_of().run(Engine(GOOD | {"b()": RuntimeError("the machine is on fire")}), lambda *told: None)
    engine = Engine(GOOD | {"b()": result(1, error="no", kind="pass")})
    await sweep_of().run(engine, lambda *told: None)
    assert engine.asked == ["b()", "c()"]
    assert sweep_of().pending == []
    for more, expected in [({"retry": True}, ["b()"]), ({"again": True}, ["a()", "b()", "c()"])]:
        engine = Engine(GOOD)
        await sweep_of(**more).run(engine, lambda *told: None)
        assert engine.asked == expected
    assert not any(row.result.error for row in sweep_of().rows(OBJECTIVES))


async def test_what_another_sweep_has_done_meanwhile_is_taken_over(sweep_of):
    mine, other = sweep_of(), sweep_of()
    first, second, _ = mine.pending
    assert mine.wants(first)
    await other.run(Engine(GOOD), lambda *told: None)
    assert not mine.wants(second)
    assert mine.results[mine._key_of[id(second)]] == GOOD["b()"]
    assert sweep_of(again=True).wants(second) is True


async def test_the_front_is_each_models_own(sweep_of):
    sweep = sweep_of()
    await sweep.run(Engine(GOOD | {"c()": result(1, 900, model="Other")}), lambda *told: None)
    assert [row.best for row in sweep.rows(OBJECTIVES)] == [True, True, True]


async def test_the_table_tells_the_best_and_all_failures(sweep_of, capsys):
    sweep = sweep_of()
    broken = result(error="AttributeError: 'x'", kind="pass")
    await sweep.run(Engine(GOOD | {"b()": broken, "a()": result(math.inf, 8020)}), lambda *told: None)
    rows = sweep.rows(OBJECTIVES)
    sweep_report.print_text(sweep, rows, OBJECTIVES, everything=False)
    out = capsys.readouterr().out.splitlines()
    assert out[1:] == [
        "2 points of 2 that no other point beats in high sqnr and low luts",
        "   pipeline   sqnr   luts",
        "*  a()       exact  8,020",
        "*  c()           5    300",
        "",
        "1 point failed",
        "  net.py | b(): AttributeError: 'x'",
        f"3 points of 3 in {sweep.store.path}",
    ]
    sweep_report.print_json(rows, OBJECTIVES, 0)
    told = json.loads(capsys.readouterr().out)
    assert [point["sqnr"] for point in told["points"]] == ["inf", None, 5]
    assert told["objectives"] == ["sqnr", "luts"]
    sweep_report.print_csv(rows, OBJECTIVES, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("file,model,pipeline,budget,best,sqnr,max_error,")
    assert lines[1].partition("net.py")[2].startswith(",Net,a(),,1,inf,,")
    assert lines[2].endswith(",AttributeError: 'x'")
