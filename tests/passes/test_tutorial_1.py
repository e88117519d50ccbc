"""Tutorial 1: its cells, with only the import line changed, on a BERT with random weights; and the page in docs/."""

import re
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from mase_server import MaseGraph
from tests.ir.models import bert_tiny

PAGE = Path(__file__).parents[2] / "docs" / "tutorial_1.md"

WORDS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "ai", "may", "take", "over", "the", "world", "one", "day", "this", "is", "why",
    "you", "should", "learn", "ad", "##ls",
]  # fmt: skip

LOAD = """
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("prajjwal1/bert-tiny")
"""

TRACE = """
from mase_server import MaseGraph
mg = MaseGraph(model)
"""

DRAW = 'mg.draw("bert-base-uncased.svg")'

RAISE = """
import torch
import mase_server.passes as passes
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
dummy_input = tokenizer(
    ["AI may take over the world one day", "This is why you should learn ADLS"],
    return_tensors="pt",
)
mg, _ = passes.init_metadata_analysis_pass(mg)
mg, _ = passes.add_common_metadata_analysis_pass(mg, pass_args={"dummy_in": dummy_input, "add_value": False})
"""

ANALYSE = """
from mase_server.tools import get_logger

logger = get_logger("mase_logger")
logger.setLevel("INFO")

def count_dropout_analysis_pass(mg, pass_args={}):
    dropout_modules = 0
    dropout_functions = 0
    for node in mg.fx_graph.nodes:
        if node.op == "call_module" and "dropout" in node.target:
            logger.info(f"Found dropout module: {node.target}")
            dropout_modules += 1
        else:
            logger.debug(f"Skipping node: {node.target}")
    return mg, {"dropout_count": dropout_modules + dropout_functions}

mg, pass_out = count_dropout_analysis_pass(mg)
logger.info(f"Dropout count is: {pass_out['dropout_count']}")
"""

TRANSFORM = """
import torch.fx as fx

def remove_dropout_transform_pass(mg, pass_args={}):
    for node in mg.fx_graph.nodes:
        if node.op == "call_module" and "dropout" in node.target:
            logger.info(f"Removing dropout module: {node.target}")
            parent_node = node.args[0]
            logger.debug(f"This dropout module has parent node: {parent_node}")
            node.replace_all_uses_with(parent_node)
            mg.fx_graph.erase_node(node)
        else:
            logger.debug(f"Skipping node: {node.target}")
    return mg, {}

mg, _ = remove_dropout_transform_pass(mg)
mg, pass_out = count_dropout_analysis_pass(mg)
assert pass_out["dropout_count"] == 0
"""

KEEP = """
from pathlib import Path
mg.export(f"{Path.home()}/tutorial_1")
new_mg = MaseGraph.from_checkpoint(f"{Path.home()}/tutorial_1")
"""


def word_piece_tokenizer():
    """A tokenizer as BERT's, with a vocabulary of these two sentences."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
    )  # fmt: skip


@pytest.fixture
def at_home(monkeypatch, tmp_path):
    """What the cells download comes from here, and home is a folder of the test's own."""
    monkeypatch.setattr(
        transformers.AutoModelForSequenceClassification, "from_pretrained", staticmethod(lambda name: bert_tiny())
    )
    monkeypatch.setattr(
        transformers.AutoTokenizer, "from_pretrained", staticmethod(lambda name: word_piece_tokenizer())
    )
    monkeypatch.setattr(Path, "home", staticmethod(lambda: tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*cells):
    namespace = {}
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), namespace)
    return namespace


def logits(graph, inputs):
    with torch.no_grad():
        return graph.model(**inputs)["logits"]


def test_the_batch_has_all_three_inputs(at_home):
    batch = run(LOAD, TRACE, RAISE)["dummy_input"]
    assert isinstance(batch, transformers.BatchEncoding)
    assert {name: list(tensor.shape) for name, tensor in batch.items()} == {
        "input_ids": [2, 10], "token_type_ids": [2, 10], "attention_mask": [2, 10],
    }  # fmt: skip
    assert batch["input_ids"].max() == len(WORDS) - 1


def test_mask_and_token_types_are_inputs_of_the_graph_that_count(at_home):
    cells = run(LOAD, TRACE, RAISE)
    graph, model = cells["mg"], cells["model"]
    inputs = {name: tensor.clone() for name, tensor in cells["dummy_input"].items()}
    assert torch.allclose(logits(graph, inputs), model(**inputs).logits, atol=1e-5)
    changes = {"attention_mask": ((1, slice(6, 10)), 0), "token_type_ids": ((0, slice(3, 8)), 1)}
    for name, (where, value) in changes.items():
        before = logits(graph, inputs)
        inputs[name][where] = value
        assert not torch.equal(logits(graph, inputs), before)
        assert torch.allclose(logits(graph, inputs), model(**inputs).logits, atol=1e-5)


def test_its_two_passes_count_and_remove_dropout(at_home, capsys):
    cells = run(LOAD, TRACE, RAISE, ANALYSE)
    assert cells["pass_out"] == {"dropout_count": 6}
    assert "INFO     Found dropout module: bert.embeddings.dropout" in capsys.readouterr().err
    before = logits(cells["mg"], cells["dummy_input"])
    cells = run(LOAD, TRACE, RAISE, ANALYSE, TRANSFORM)
    assert cells["pass_out"] == {"dropout_count": 0}
    graph = cells["mg"]
    assert not any("dropout" in str(node.target) for node in graph.nodes)
    assert graph.check_against(cells["model"], cells["dummy_input"], atol=1e-5)
    assert before.shape == logits(graph, cells["dummy_input"]).shape


def test_fx_refuses_to_erase_a_node_that_is_used(at_home):
    careless = TRANSFORM.replace("            node.replace_all_uses_with(parent_node)\n", "")
    with pytest.raises(RuntimeError, match="still had"):
        run(LOAD, TRACE, RAISE, ANALYSE, careless)


def test_the_transformed_graph_survives_its_checkpoint(at_home):
    pytest.importorskip("mase_server.ir.checkpoint")
    cells = run(LOAD, TRACE, RAISE, ANALYSE, TRANSFORM, KEEP)
    graph, loaded, inputs = cells["mg"], cells["new_mg"], cells["dummy_input"]
    assert sorted(path.name for path in at_home.iterdir()) == ["tutorial_1.mz", "tutorial_1.pt"]
    assert torch.equal(logits(loaded, inputs), logits(graph, inputs))
    assert [(node.name, node.meta["mase"]["common"]) for node in loaded.nodes] == [
        (node.name, node.meta["mase"]["common"]) for node in graph.nodes
    ]


def test_the_drawing_is_a_file(at_home):
    pytest.importorskip("mase_server.ir.draw")
    pytest.importorskip("igraph")
    run(LOAD, TRACE, DRAW)
    assert (at_home / "bert-base-uncased.svg").read_text().lstrip().startswith(("<?xml", "<svg"))


def test_every_block_of_the_page_runs(at_home, capsys):
    pytest.importorskip("mase_server.ir.checkpoint")
    pytest.importorskip("mase_server.ir.draw")
    pytest.importorskip("igraph")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) > 10
    namespace = run(*blocks)
    assert isinstance(namespace["new_mg"], MaseGraph)
    assert (at_home / "bert-tiny.svg").exists()
