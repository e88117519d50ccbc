"""Extractive question answering on top of Hugging Face BERT-base, built from its config (nothing is downloaded)."""

import torch
from torch import nn
from transformers import BertConfig, BertModel


class BertForSpans(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.span = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids, attention_mask):
        outputs = self.bert(input_ids, attention_mask=attention_mask)
        hidden = self.dropout(outputs.last_hidden_state)
        logits = self.span(hidden)
        start, end = logits.unbind(dim=-1)
        return start, end


if __name__ == "__main__":
    torch.manual_seed(0)
    config = BertConfig()  # the size of bert-base-uncased
    model = BertForSpans(config).eval()
    input_ids = torch.randint(0, config.vocab_size, (2, 64))
    attention_mask = torch.ones_like(input_ids)

    with torch.no_grad():
        start, end = model(input_ids, attention_mask)
    print("answer spans:", list(zip(start.argmax(-1).tolist(), end.argmax(-1).tolist())))
