"""The field's naming habits: the usual meaning of a constructor argument or an input by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from mase_server.tracing.inputs.spec import TensorSpec

#: Constructor arguments: pattern -> value; the first match counts. Widths divide by head counts, images by patches.
ARGUMENTS: tuple[tuple[str, Any], ...] = (
    (r"^pretrain(ed)?$|^augment(ation)?$|^(debug|verbose|freeze)$", False),
    (r"^(use|is|with|has|enable|apply)_|^(bidirectional|causal|affine|batch_?norm|residual)$", True),
    (r"^device$", "cpu"),
    (r"(rnn|cell|recurrent|layer)_?type$|^rnn(_?(name|kind))?$", "GRU"),
    (r"_heads?$", 4),
    (r"_layers?$|(num|n)_?(downs?|ups?)$", 2),
    (r"pad(ding)?_(idx|index|id|token)|(^|_)(idx|index)$", 0),
    (r"(in|input|out|output|img|image)_nc$", 3),
    (r"n_mels|mel_?(bins|channels)", 80),
    (r"_ctx$|n_ctx", 64),
    (r"^n_\w+_state$", 64),
    (r"(image|img|input)_?(size|res|resolution)|resolution|^size$", 32),
    (r"patch(_?size)?$", 4),
    (r"win(dow)?_?size$", 8),
    (r"^(n_?|num_?)?(class(es)?|labels?|outputs?)$|n(um)?_?class(es)?|out(put)?_?(dim|size)", 10),
    (r"vocab|num_?(tokens|embeddings|words|items|users)|n_?(tokens|items|users)|ntoken", 1000),
    (r"(block|context|max|seq).*(size|len|length|pos)|max_?(seq|pos|len)|positions|seq_?len|block_size|window", 64),
    (r"in_?(channels?|chans?|ch|c)$|^channels?$|n(um)?_?channels|img_?channels|image_?channels|^nc$", 3),
    (r"out_?(channels?|chans?|ch|c)$|planes|base|n_?filters?|^ngf|^ndf|growth", 16),
    (r"(num|n)_?(q_|query_)?heads?$|^heads?$|nhead|attention_heads", 4),
    (r"kv_?heads?", 2),
    (r"head_?dim|dim_?head", 16),
    (r"depth|(num|n)_?(\w+_)?(layers?|blocks?|stages?|levels?|hierarchies|scales?)|^layers?$|^blocks?$|repeat", 2),
    (r"mlp_?ratio|expansion|ratio|mult(iplier)?$", 4),
    (r"dilat", 1),
    (r"sampl(e|ing)_?rate$|^sr$", 16000),
    (r"dropout|drop(_|$)|^p$|_p$|drop_?path|^eps(ilon)?$|alpha|beta|slope|temperature|momentum|rate$", 0.1),
    (r"mlp_?dim|intermediate|ffn?(_|$)|feed_?forward|dim_?ff|hidden_?features", 128),
    (r"(latent|z|noise|code)_?(dim|size)?$|^nz$|bottleneck", 16),
    (r"(obs|state|observation)(_?(dim|size|space))?$|n_?(states|observations)", 8),
    (r"act(ion)?s?(_?(dim|size|space))?$|n_?actions", 4),
    (r"n_?experts|num_?experts|experts", 4),
    (r"top_?k|^k$|stride|^s$", 2),
    (r"kernel(_?size)?|^ks$", 3),
    (r"padding|^pad$|groups?", 1),
    (r"in(put)?_?(features|dim|size|ch)|n_?(features|inputs)|feature_?(dim|size)|^in_|nfeat", 32),
    (r"dim|hidden|embed|d_?model|features|width|size|units|^d$|^h$|channels|nhid|ninp", 64),
)
#: Names of lengths, which need not divide by anything.
_LENGTH = re.compile(r"ctx|(block|context|max|seq).*(size|len|length|pos)|max_?(seq|pos|len)|positions")
#: Factors between the sizes of layers, which a constructor multiplies.
STEPS = re.compile(r"(^|_)(scales|factors|rates|ratios|strides)$")
#: Lists: the usual `hidden_sizes` or `layers`.
LISTS: tuple[tuple[str, list[int]], ...] = (
    (r"layers|depths|blocks|repeats", [2, 2, 2, 2]),
    (STEPS.pattern, [2, 2]),
    (r"", [32, 64]),
)

#: Texts: the usual word; one that nothing needs is empty.
TEXTS: tuple[tuple[str, str], ...] = (
    (r"(rnn|cell|recurrent)_?(type|name|kind)?$", "GRU"),
    (r"act(ivation)?s?(_|$)|non_?lin", "relu"),
    (r"norm", "batch"),
    (r"pad(ding)?_?(mode|type)", "zeros"),
    (r"dtype|precision", "float32"),
    (r"device", "cpu"),
    (r"(^|_)(dir|folder|root)$|directory", "."),
    (r"pool|reduc|aggr", "mean"),
    (r"backbone|arch|(encoder|model|base|net(work)?)_?(name|type|version)?$", "resnet18"),
)

#: Inputs: pattern -> candidates; `V` is the model's vocabulary or class count.
INPUTS: tuple[tuple[str, tuple[TensorSpec, ...]], ...] = (
    (r"len(gth)?s?$|_len", (TensorSpec("i64", ("B",), "lengths", "T"),)),
    (r"edge_?index|^edges?$", (TensorSpec("i64", (2, "E"), "below", "N"),)),
    (r"^edge_?(labels?|masks?|types?|ids?)$", (TensorSpec("i64", ("E",), "ones"),)),
    (r"^edge_?(weight|attr|attributes?|features?)s?$", (TensorSpec("f32", ("E",)), TensorSpec("f32", ("E", 1)))),
    (
        r"^(pts|points?|xyz|coords?|coordinates|point_?cloud|pc|pcd|cloud)$",
        (TensorSpec("f32", ("B", "N", 3)), TensorSpec("f32", ("B", 3, "N")), TensorSpec("f32", ("N", 3))),
    ),
    (
        r"^(grid|mesh_?grid|coord_?grid)$",
        (
            TensorSpec("f32", ("B", "H", "W", 2)),
            TensorSpec("f32", ("B", "L", 1)),
            TensorSpec("f32", ("B", "D", "H", "W", 3)),
        ),
    ),
    (
        r"^(wavs?|waves?|waveforms?|audios?|speech|raw|signals?)$",
        (TensorSpec("f32", ("B", "L")), TensorSpec("f32", ("B", 1, "L"))),
    ),
    (  # the month, day, weekday and hour of each step of a series
        r"(^|_)(time_?)?marks?(_|$)|^time_?(feat(ure)?s?|stamps?)$",
        (TensorSpec("f32", ("B", "T", 4)), TensorSpec("i64", ("B", "T", 4), "below", 7)),
    ),
    (r"^guidance(_scale)?$", (TensorSpec("f32", ("B",), "uniform"),)),
    (  # height and width of each image
        r"^((orig(inal)?|target|image|img|max)_)+(sizes|shapes)$",
        (TensorSpec("i64", ("B", 2), "full", 32),),
    ),
    (  # of a detector, for each of its queries or anchors
        r"^(pred_box(es)?|anchors|((bbox|box|loc)_)?regressions?|bbox_preds?)$",
        (TensorSpec("f32", ("B", "N", 4), "uniform"), TensorSpec("f32", ("B", 4), "uniform")),
    ),
    (
        r"^(pred|cls|class)_(logits|scores)$",
        (TensorSpec("f32", ("B", "N", 10)), TensorSpec("f32", ("B", 10)), TensorSpec("f32", ("B", 10, "H", "W"))),
    ),
    (
        r"^(gt_|b)?box(es)?$",
        (TensorSpec("f32", ("B", 4), "uniform"), TensorSpec("f32", ("B", "N", 4), "uniform")),
    ),
    (r"^annot(ation)?s$", (TensorSpec("f32", ("B", "N", 5)),)),
    (r"^batch$|batch_?(idx|index)|graph_?ids?", (TensorSpec("i64", ("N",), "zeros"),)),
    (
        r"^adj|adjacency|^a$|laplacian",
        (TensorSpec("f32", ("N", "N"), "uniform"), TensorSpec("f32", ("B", "N", "N"), "uniform")),
    ),
    (
        r"mask",
        (
            TensorSpec("bool", ("B", "T"), "ones"),
            TensorSpec("bool", ("T", "T"), "causal"),
            TensorSpec("f32", ("T", "T"), "causal"),
            TensorSpec("bool", ("B", 1, "T", "T"), "causal"),
            TensorSpec("i64", ("B", "T"), "ones"),
        ),
    ),
    (r"pos(ition)?(_?ids?)?$", (TensorSpec("i64", ("B", "T"), "arange"), TensorSpec("i64", ("T",), "arange"))),
    (
        r"^(index|indices|inds?|which|selected|perm(utation)?|\w+_(index|indices))$",
        (TensorSpec("i64", ("B",), "below", 2), TensorSpec("i64", ("B", "T"), "below", 2)),
    ),
    (
        r"^(rays?(_?[od]|_origins?|_dir(ection)?s?)?|(view_?)?dirs?|directions?|origins?)$",
        (TensorSpec("f32", ("N", 3)), TensorSpec("f32", ("B", "N", 3))),
    ),
    (r"^(actions?|acts?)$", (TensorSpec("i64", ("B",), "below", 2), TensorSpec("i64", ("B", 1), "below", 2))),
    (
        r"^(preds?|predictions?|y_?(pred|hat)|logits|scores?|outputs?)$",
        (TensorSpec("f32", ("B", 10)), TensorSpec("f32", ("B", 3, "H", "W")), TensorSpec("f32", ("B",))),
    ),
    (r"token_?type|segment", (TensorSpec("i64", ("B", "T"), "zeros"),)),
    (
        r"^(sigmas?|noise_?levels?|log_?snr)$",
        (TensorSpec("f32", ("B",), "uniform"), TensorSpec("f32", ("B", 1), "uniform")),
    ),
    (
        r"^(t|ts|time|timesteps?|(time|diffusion|noise|train)_?steps?|step)$",
        (
            TensorSpec("i64", ("B",), "below", 10),
            TensorSpec("f32", ("B",), "uniform"),
            TensorSpec("f32", ("B", 1), "uniform"),
        ),
    ),
    (
        r"^(y|labels?|targets?|class(es)?|class_?labels?|cond(ition)?)$",
        (
            TensorSpec("i64", ("B",), "below", "V"),
            TensorSpec("i64", ("B", "T"), "below", "V"),
            TensorSpec("f32", ("B", "V")),
        ),
    ),
    (r"_(ratings?|weights?|scores?|values?|probs?)$", (TensorSpec("f32", ("B", "T")), TensorSpec("f32", ("B",)))),
    (
        r"(^|_)(idx|ids?|input_?ids|tok(en)?s?|src|tgt|trg|source|target|text|words?|sents?|sentences?|users?|items?)($|_)",
        (TensorSpec("i64", ("B", "T"), "below", "V"), TensorSpec("i64", ("B",), "below", "V")),
    ),
)  # fmt: skip

#: Names of the state that a recurrent model takes.
STATE = re.compile(
    r"^(hidden|hid|h|hx|h_?0|hc|states?|h_state|(prev|init|initial|last)_(hidden|state|h)|hidden_states?)$"
)


def usual_argument(name: str) -> Any:
    """The usual value of a constructor argument of this name; None if unknown."""
    return next((value for pattern, value in ARGUMENTS if re.search(pattern, name.lower())), None)


def usual_text(name: str) -> str:
    """The usual text for an argument of this name."""
    return next((word for pattern, word in TEXTS if re.search(pattern, name.lower())), "")


def other_arguments(name: str) -> list[Any]:
    """Further values of a constructor argument of this name, if the usual value fails."""
    usual = usual_argument(name)
    if isinstance(usual, bool) or not isinstance(usual, int):
        return []
    if re.search(r"size|res", name.lower()) and usual == 32:
        return [64, 224, 256, 128, 96]
    return [usual * 2, usual * 4, max(1, usual // 2), 1, usual + 1, usual * 8]


def other_sizes(name: str, value: int) -> Iterator[int]:
    """Further sizes that are usual for an argument of this name, which had `value`."""
    # A multiple keeps what divides the size: heads, groups, patches.
    factors = (0.75, 1.25, 1.75, 1.5) if _LENGTH.search(name.lower()) else (2, 1.5, 3, 2.5, 4, 5, 6)
    yield from (int(value * factor) for factor in factors if value * factor == int(value * factor))


def usual_list(name: str) -> list[int]:
    """The usual list for this name."""
    return next(list(value) for pattern, value in LISTS if re.search(pattern, name.lower()))


#: Names of dictionaries that give each word its number, and the least number of words in one.
_VOCABULARY = re.compile(r"word|vocab|token|stoi|char|(to|2)_?i(d|dx|nd|ndex)?s?$")
LEAST_WORDS = 10


def number_words(name: str, words: Sequence[str]) -> dict[str, int]:
    """The number of each of these words and a few more, for an argument of this name; {} if it has another one."""
    if not words or _VOCABULARY.search(name.lower()) is None:
        return {}
    more = (f"word{number}" for number in range(len(words), LEAST_WORDS))
    return {word: number for number, word in enumerate([*words, *more])}


def usual_inputs(name: str) -> tuple[TensorSpec, ...]:
    """Candidates for an input of this name; their symbol `V` is still open."""
    return next((specs for pattern, specs in INPUTS if re.search(pattern, name.lower())), ())
