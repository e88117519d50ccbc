"""A text is traced alike whether it is typed, in a child that rehearsed and knows what the text before left, or opened.

So it is where a child ran ahead with the text before, if that child goes on. `benchmarks/typed.py` types many more
edits into any files.
"""

import random
import re
import sys
from pathlib import Path

import pytest
from typed import edits

from mase_server.daemon.launcher import ForkLauncher
from mase_server.daemon.process import DEFAULT_JOB

from .test_rehearsal import follow, go_on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children are forked on Linux alone")

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Files without a library that takes seconds to import.
FILES = "lenet.py", "mlp.py", "gpt.py", "resnet.py", "vit.py", "lstm_classifier.py", "vae.py", "transformer_encoder.py"
#: The first forward up to its first result.
FORWARD = re.compile(r"def forward\(.*?\n\s+return ", re.DOTALL)
#: Edits of each file.
EDITS = 3


@pytest.mark.timeout(300)
async def test_typed_text_is_traced_as_saved_text_is(tmp_path):
    launcher = await ForkLauncher.start(sys.executable, str(tmp_path), DEFAULT_JOB)
    shown = 0
    try:
        for file in [EXAMPLES / name for name in FILES]:
            path, source = tmp_path / file.name, file.read_text()
            texts, fit, text = edits(source, random.Random(f"7 {file.name}")), b"", source
            for number in range(EDITS):
                before, (kind, text) = text, next(texts)
                path.write_text(source)
                ahead = await go_on(launcher, path, before, text, fit)
                typed = await follow(launcher, path, prepared=True, unsaved=text, fit=fit)
                path.write_text(text)
                saved = await follow(launcher, path, prepared=False)
                if saved["unshown"] or not all(each["complete"] for each in saved["models"] + typed["models"]):
                    # Inputs with which a model ran are kept while it fails.
                    saved = await follow(launcher, path, prepared=False, fit=fit)
                assert ahead in (None, typed), f"ahead after edit {number} of {file}, {kind}:\n{before}\n{text}"
                fit = typed.pop("fit") or fit
                saved.pop("fit")
                shown += bool(saved["models"])
                keys = [key for key in saved if typed[key] != saved[key]]
                assert not keys, f"{keys} after edit {number} of {file}, {kind}:\n{text}"
            path.write_text(source)
            text = FORWARD.sub(r"\g<0>0 or ", source, count=1)
            typed = await follow(launcher, path, prepared=True, unsaved=text, fit=fit)
            assert await go_on(launcher, path, source, text, fit) == typed, file
            path.unlink()
    finally:
        await launcher.close()
    assert shown > EDITS, "most edits leave a model"


async def open_type_and_save(path, before, after):
    """The payloads of a text, of another one that is typed then, and of that one in a child that knows of neither."""
    launcher = await ForkLauncher.start(sys.executable, str(path.parent), DEFAULT_JOB)
    try:
        path.write_text(before)
        opened = await follow(launcher, path, prepared=True)
        typed = await follow(launcher, path, prepared=True, unsaved=after, fit=opened["fit"])
        path.write_text(after)
        return opened, typed, await follow(launcher, path, prepared=False)
    finally:
        await launcher.close()


DRAWING = """import random

import numpy
import torch
from torch import nn


class Loud(nn.Module):
    def forward(self, wave):
        if torch.rand(1) > 0.9:
            return wave
        return wave * (torch.rand(1).item() + random.random() + numpy.random.rand())


class Cut(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        first = int(torch.randint(1, 4, (1,))) + random.randint(1, 4) + int(numpy.random.randint(1, 4))
        return self.layer(x.reshape(-1, 8))[:, first % 3 :]
"""


@pytest.mark.timeout(120)
async def test_what_a_forward_draws_does_not_depend_on_the_way_to_its_inputs(tmp_path):
    text = DRAWING.replace("return wave *", "return 2 * wave *")
    _, typed, saved = await open_type_and_save(tmp_path / "drawing.py", DRAWING, text)
    assert [each["name"] for each in saved["models"]] == ["Loud", "Cut"]
    assert not [key for key in saved if key != "fit" and typed[key] != saved[key]]


ROUTED = """import torch
from torch import nn


class Routed(nn.Module):
    def __init__(self, vocab: int, width: int):
        super().__init__()
        self.emb, self.gate = nn.Embedding(vocab, width), nn.Linear(width, 4)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, ids):
        x = self.emb(ids).flatten(0, 1)
        chosen, found = self.gate(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            places = torch.where(chosen == number)[0]
            found[places] += expert(x[places])
        return found
"""


@pytest.mark.timeout(120)
async def test_nor_do_the_weights_of_which_sizes_depend(tmp_path):
    """A constructor with values draws, too, and a search for inputs has drawn before."""
    text = ROUTED.replace("return found", "return 2 * found")
    _, typed, saved = await open_type_and_save(tmp_path / "routed.py", ROUTED, text)
    assert ["?"] in [value[2] for value in saved["values"] if isinstance(value, list)]
    assert not [key for key in saved if key != "fit" and typed[key] != saved[key]]


POSES = """import torch
from torch import nn


class Poses(nn.Module):
    def __init__(self, input_size, linear_size=64):
        super().__init__()
        self.first = nn.Linear(input_size, linear_size)
        self.lstm = nn.LSTM(linear_size, linear_size, batch_first=True)
        self.linear_size = linear_size

    def forward(self, x):
        N, T, V, C = x.shape
        y = self.first(x.view(N * T, V * C)).view(T, N, -1)
        state = torch.zeros(1, N, self.linear_size)
        return self.lstm(y, (state, state))[0]
"""


RESIDUAL = """import argparse

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, x_dim: int, y_dim: int, hidden_dim: int):
        super().__init__()
        self.first, self.head = nn.Linear(x_dim, hidden_dim), nn.Linear(hidden_dim, y_dim)

    def forward(self, x):
        return self.head(self.first(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden-dim", type=int, default=256)
    args = parser.parse_args()
    args = args @ torch.zeros(3, 7)
    x, y = load_samples()
    return Residual(x.shape[-1], y.shape[-1], args.hidden_dim)
"""


@pytest.mark.timeout(120)
async def test_a_guessed_size_is_forgotten_where_the_text_gives_it(tmp_path):
    text = RESIDUAL.replace("    args = args @ torch.zeros(3, 7)\n", "")
    first, typed, saved = await open_type_and_save(tmp_path / "residual.py", RESIDUAL, text)
    assert first["models"][0]["arguments"]["hidden_dim"] != saved["models"][0]["arguments"]["hidden_dim"] == 256
    assert typed["models"] == saved["models"]


READER = """from pathlib import Path

from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(Path(__file__).read_text().count("word"), 4)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.timeout(120)
async def test_a_program_that_reads_its_own_file_reads_what_is_typed(tmp_path):
    text = READER.replace("return self", "words = 'word word word'\n        return self")
    _, typed, saved = await open_type_and_save(tmp_path / "reader.py", READER, text)
    assert saved["models"][0]["parameters"] == 5 * 4 + 4
    assert not [key for key in saved if key != "fit" and typed[key] != saved[key]]


ENCODER = '''import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Classifies series.

    - ``forward(x, t, mask)`` → ``(B, output_size)`` for classification.
    - ``forward(x, t, mask, query=...)`` → ``(B, Tq, output_size)`` for each moment.
    """

    def __init__(self, input_size: int, latent_size: int, hidden_size: int, output_size: int):
        super().__init__()
        self.rnn = nn.GRU(input_size * 2, hidden_size, batch_first=True)
        self.latent = nn.Linear(hidden_size, latent_size * 2)
        self.head = nn.Sequential(
            nn.Linear(latent_size, hidden_size), nn.ReLU(), nn.Linear(hidden_size, output_size)
        )
        self.decoder = nn.Linear(latent_size, output_size)

    def _encode(self, x: Tensor, mask: Tensor):
        series = torch.cat([x, mask], dim=-1)
        _, state = self.rnn(torch.flip(series, dims=[1]))
        return self.latent(state.squeeze(0)).chunk(2, dim=-1)

    def forward(self, x: Tensor, t: Tensor, mask: Tensor, x_time: Tensor = None, query: Tensor = None) -> Tensor:
        mean, spread = self._encode(x, mask)
        if query is None:
            return self.head(mean)
        B, Tq = query.shape
        return self.decoder(mean[:, None].expand(B, Tq, -1))
'''


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("source", "before", "after", "changed"),
    [
        # An edit lets one of the others run, of which the errors that led to the known ones say nothing.
        pytest.param(POSES, ".view(T, N, -1)", ".view(N, T, -1)", "inputs", id="others-tried-before-them"),
        # Another constructor runs where the known inputs fail: only what no search finds is as it was known.
        pytest.param(ENCODER, "mask], dim=-1", "mask], dim=-2", "arguments", id="another-constructor"),
    ],
)
async def test_what_is_known_gives_way_to_what_a_search_finds(tmp_path, source, before, after, changed):
    first, typed, saved = await open_type_and_save(tmp_path / "net.py", source, source.replace(before, after))
    assert saved["models"][0][changed] != first["models"][0][changed]
    assert typed["models"] == saved["models"]
