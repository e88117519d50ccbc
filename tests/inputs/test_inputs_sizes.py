"""Guessed sizes differ from each other where the code leaves them free, and agree where it does not.

Ground truth: what is found runs in plain eager PyTorch, with the arguments that are told.
"""

import json

import pytest

from mase_server.tracing.models.found import Found
from tests.inputs.test_inputs_repairs import HEAD, looked_at, runs_in_eager
from tests.worker.test_job import Job

TOWERS = (
    HEAD
    + """class Towers(nn.Module):
    def __init__(self, embed_dim: int, vision_width: int, context_length: int, vocab_size: int, transformer_width: int,
                 transformer_heads: int, transformer_layers: int):
        super().__init__()
        self.patches = nn.Conv2d(3, vision_width, 4, stride=4)
        self.image = nn.Linear(vision_width, embed_dim)
        self.tokens = nn.Embedding(vocab_size, transformer_width)
        self.positions = nn.Parameter(torch.zeros(context_length, transformer_width))
        layer = nn.TransformerEncoderLayer(transformer_width, transformer_heads, batch_first=True)
        self.body = nn.TransformerEncoder(layer, transformer_layers)
        self.text = nn.Linear(transformer_width, embed_dim)

    def forward(self, image, text):
        seen = self.image(self.patches(image).flatten(2).mean(2))
        read = self.text(self.body(self.tokens(text) + self.positions)[:, -1])
        return seen @ read.t()
"""
)


def test_sizes_that_the_code_leaves_free_are_all_different(workspace):
    (found,) = looked_at(workspace, TOWERS)
    assert isinstance(found, Found)
    names = ("embed_dim", "vision_width", "context_length", "transformer_width", "vocab_size")
    sizes = [found.arguments[name] for name in names]
    assert len(set(sizes)) == len(sizes), found.arguments
    assert (found.arguments["transformer_heads"], found.arguments["transformer_layers"]) == (4, 2), "counts stay counts"
    assert found.spec.sizes["T"] == found.arguments["context_length"], "all positions are added"
    runs_in_eager(found)


def test_sizes_that_the_forward_needs_to_be_equal_stay_equal_and_the_others_differ(workspace):
    text = (
        HEAD
        + """class Net(nn.Module):
    def __init__(self, audio_dim, text_dim, hidden_dim):
        super().__init__()
        self.audio = nn.Linear(16, audio_dim)
        self.hidden = nn.Linear(text_dim, hidden_dim)

    def forward(self, x):
        return self.hidden(self.audio(x))
"""
    )
    (found,) = looked_at(workspace, text)
    given = found.arguments
    assert given["audio_dim"] == given["text_dim"] != given["hidden_dim"]
    runs_in_eager(found)


def test_entries_of_a_guessed_configuration_differ_too(workspace):
    text = (
        HEAD
        + """from dataclasses import dataclass


@dataclass
class Dimensions:
    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_text_ctx: int
    n_text_state: int
    n_vocab: int = 512


class Encoder(nn.Module):
    def __init__(self, n_mels: int, n_ctx: int, n_state: int):
        super().__init__()
        self.conv = nn.Conv1d(n_mels, n_state, 3, stride=2, padding=1)
        self.register_buffer("positions", torch.zeros(n_ctx, n_state))

    def forward(self, x):
        x = self.conv(x).permute(0, 2, 1)
        assert x.shape[1:] == self.positions.shape, "incorrect audio shape"
        return x + self.positions


class Decoder(nn.Module):
    def __init__(self, n_vocab: int, n_ctx: int, n_state: int):
        super().__init__()
        self.tokens = nn.Embedding(n_vocab, n_state)
        self.positions = nn.Parameter(torch.zeros(n_ctx, n_state))
        self.attention = nn.MultiheadAttention(n_state, 4, batch_first=True)

    def forward(self, x, xa):
        x = self.tokens(x) + self.positions[: x.shape[-1]]
        return self.attention(x, xa, xa)[0]


class Speech(nn.Module):
    def __init__(self, dims: Dimensions):
        super().__init__()
        self.encoder = Encoder(dims.n_mels, dims.n_audio_ctx, dims.n_audio_state)
        self.decoder = Decoder(dims.n_vocab, dims.n_text_ctx, dims.n_text_state)

    def forward(self, mel: torch.Tensor, tokens: torch.Tensor):
        return self.decoder(tokens, self.encoder(mel))
"""
    )
    found = next(each for each in looked_at(workspace, text) if isinstance(each, Found))
    assert found.name == "Speech"
    dims = found.arguments["dims"]
    assert dims.n_audio_state == dims.n_text_state, "the decoder looks at what the encoder gives"
    assert len({dims.n_mels, dims.n_audio_ctx, dims.n_text_ctx, dims.n_text_state}) == 4, dims
    assert dims.n_vocab == 512, "what the code says stays"
    assert found.spec.entries["mel"].dims[1] == dims.n_mels
    runs_in_eager(found)


def test_the_next_trace_shows_the_same_sizes(tmp_path):
    first = Job(tmp_path, TOWERS.removeprefix(HEAD))
    again = Job(tmp_path, TOWERS.removeprefix(HEAD), fit=first.payload["fit"])
    assert json.loads(first.payload["fit"])["inputs"]["Towers"][2], "sizes were changed"
    assert again.payload["models"][0]["arguments"] == first.payload["models"][0]["arguments"]
    assert again.rows() == first.rows()


LOOPS = """
class Net(nn.Module):
    def __init__(self, embed_dim, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, embed_dim), nn.Linear(embed_dim, 3)
        for value in self.parameters():
            nn.init.zeros_(value)

    def forward(self, x):
        return self.down(self.up(x))
"""


def test_a_constructor_that_was_tried_with_other_sizes_leaves_no_rows(tmp_path):
    """Two weights and two biases; those of the model with equal sizes are not shown."""
    job = Job(tmp_path, LOOPS)
    shapes = [job.payload["values"][value][1] for value in _values_of(job.payload, "value")]
    assert sorted(shapes) == sorted([[64, 128], [64], [3, 64], [3]])


def _values_of(payload, name):
    sites, rows = payload["sites"], payload["rows"]
    return [value for site, value in zip(rows["site"], rows["value"], strict=True) if sites["name"][site] == name]


IMAGES = """class Net(nn.Module):
    def __init__(self, img_size={size}, patch_size=16, width=24):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch_size, stride=patch_size)
        self.positions = nn.Parameter(torch.zeros(1, width, 14, 14))

    def forward(self, x):
        return self.patches(x) + self.positions
"""


@pytest.mark.parametrize("size", ["224", "[224]", "(224, 224)"])
def test_an_image_has_the_size_that_the_constructor_is_given_by_default(workspace, size):
    """An image of one patch would run too: its sum with the positions broadcasts."""
    (found,) = looked_at(workspace, HEAD + IMAGES.format(size=size))
    assert found.spec.sizes | {} == {"B": 2, "H": 224, "W": 224} or found.spec.entries["x"].dims[-2:] == (224, 224)


def test_a_window_is_two_equal_small_numbers(workspace):
    text = (
        HEAD
        + """class Net(nn.Module):
    def __init__(self, dim, window_size):
        super().__init__()
        self.table = nn.Parameter(torch.zeros((2 * window_size[0] - 1) * (2 * window_size[1] - 1), dim))
        self.layer = nn.Linear(dim, dim)

    def forward(self, x):
        return self.layer(x)
"""
    )
    (found,) = looked_at(workspace, text)
    assert list(found.arguments["window_size"]) == [8, 8]


def test_a_padding_index_is_zero(workspace):
    text = (
        HEAD
        + """class Net(nn.Module):
    def __init__(self, n_vocab, src_pad_idx, pad_idx):
        super().__init__()
        self.words, self.pad = nn.Embedding(n_vocab, 12, padding_idx=pad_idx), src_pad_idx

    def forward(self, words):
        return self.words(words) * (words != self.pad).unsqueeze(-1)
"""
    )
    (found,) = looked_at(workspace, text)
    assert (found.arguments["src_pad_idx"], found.arguments["pad_idx"]) == (0, 0)


def test_a_norm_without_weights_tells_its_input_too(workspace):
    """A linear layer alone would take rows, whose sum with a shift of tokens broadcasts to [B, B, 24]."""
    text = (
        HEAD
        + """class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.linear, self.shift = nn.Linear(width, 8), nn.Linear(width, width)

    def forward(self, x, c):
        return self.linear(self.norm(x) + self.shift(c).unsqueeze(1))
"""
    )
    (found,) = looked_at(workspace, text)
    assert found.spec.entries["x"].dims == ("B", "T", 24)
    assert found.spec.entries["c"].dims == ("B", 24)
