"""Small models for tests of the IR."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    """The three-layer network of MASE's documentation."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 784)
        self.fc2 = nn.Linear(784, 784)
        self.fc3 = nn.Linear(784, 10)

    def forward(self, x):
        x = torch.flatten(x, start_dim=1, end_dim=-1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Convolutional(nn.Module):
    """Convolution, batch normalisation, pooling; something of every kind of state."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.conv(x)), inplace=True))
        return self.head(x.flatten(1))


class Classifier(nn.Module):
    """Token ids, a padding mask that the forward looks at, dropout, a dict as output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.inner = nn.Linear(16, 16)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(16, 4)

    def forward(self, input_ids, attention_mask=None, scale=1.0):
        x = self.embedding(input_ids)
        if attention_mask is not None and not attention_mask.all():
            x = x * attention_mask.unsqueeze(-1)
        x = self.dropout(torch.tanh(self.inner(x))) * scale
        return {"hidden": x, "logits": self.head(x.mean(dim=1))}


def bert_tiny(**changes):
    """A Hugging Face BERT for classification of two layers, with random weights."""
    transformers = __import__("transformers")
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, **changes,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def bert_inputs(*, batch=2, tokens=10, padded=0):
    """Ids, a mask with so many zeros at the end of the last row, and token types."""
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    if padded:
        mask[-1, -padded:] = 0
    return {
        "input_ids": torch.randint(0, 200, (batch, tokens), generator=torch.Generator().manual_seed(0)),
        "attention_mask": mask,
        "token_type_ids": torch.arange(tokens).ge(tokens // 2).long().expand(batch, tokens).clone(),
    }


def argument(node, name="data_in_0"):
    return node.meta["mase"]["common"]["args"][name]


def result(node, name="data_out_0"):
    return node.meta["mase"]["common"]["results"][name]


def node_named(graph, name):
    return next(node for node in graph.nodes if node.name == name)
