"""The demo and the benchmarks run and print what they promise; never how fast."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def output_of(script: str, *arguments: str) -> str:
    """What a script of benchmarks/ prints; it must succeed."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def demo() -> str:
    return output_of("demo.py")


def test_the_demo_shows_every_example_traced(demo):
    assert re.findall(r"(\w+\.py)  ready", demo) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("shape", ["f32[B, 4, T, T]", "f32[B, 3, 224, 224]", "i64[B, T]", "f32[B, 5]"])
def test_the_demo_shows_hints_with_named_dimensions(demo, shape):
    # ResNet names its image sizes H and W where they may vary; ViT's cannot.
    assert shape in demo


def test_the_demo_shows_a_whole_hover_card(demo):
    card = demo[demo.index("hover: att") :]
    assert "f32[B, 4, T, T]" in card
    assert "FLOPs" in card


def test_the_demo_shows_an_error_and_mends_it(demo):
    error = demo[demo.index("an error") :]
    assert "512" in error
    assert "256" in error
    assert "fix: " in error
    assert "after the fix: ready, 0 problems" in error


def test_the_demo_times_a_save_of_each_measured_file(demo):
    table = demo[demo.index("from a save to fresh hints") :]
    for file in ("mlp.py", "lenet.py", "gpt.py", "resnet.py", "llama.py", "bert_hf.py"):
        assert re.search(rf"{file}.*\d+ ms", table)


def test_latency_prints_medians_and_ratios():
    table = output_of("latency.py", "mlp.py", "--saves", "2")
    assert re.search(r"mlp\.py.*\d+ ms.*150 ms.*\d+\.\d+ s.*\d+\.\d+x", table)


def test_startup_says_that_the_server_holds_no_torch():
    table = output_of("startup.py", "--runs", "1", "--file", "mlp.py")
    assert re.search(r"torch in the server.*\bno\b.*no", table)


def test_the_library_does_not_grow_over_hundreds_of_graphs():
    table = output_of("library.py", "growth")
    objects = re.search(r"objects.*?([\d,]+).*?([\d,]+)", table)
    before, after = (int(text.replace(",", "")) for text in objects.groups())
    assert after - before < 400


def test_rounds_of_random_typing_end_as_a_new_server_shows_their_texts():
    assert "2 rounds, 0 failed" in output_of("races.py", "2", "--steps", "8")


def test_edits_that_are_typed_are_traced_as_they_are_when_opened():
    told = output_of("typed.py", "--edits", "5", str(ROOT / "examples" / "mlp.py"), str(ROOT / "examples" / "vae.py"))
    assert re.search(r"^vae\.py: 10 edits, .* 0 differ, .*\(100\.0 %\)", told, re.MULTILINE), told


def test_formats_are_told_with_an_error_that_is_computed_apart():
    told = output_of("passes.py", "formats", "--models", "bert", "--formats", "fixed(8,auto)", "mxint(8)")
    assert re.search(r"^bert \d+ \d+$", told, re.MULTILINE), told
    assert re.search(r"models\s+│\s+1\s+│\s+1", told), told
