"""Sentiment of a review of any length: embeddings, a packed bidirectional LSTM, one score per class."""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class LSTMClassifier(nn.Module):
    def __init__(self, vocab_size=5000, embed_dim=64, hidden_dim=96, num_classes=2, padding_idx=0):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=padding_idx)
        self.lstm = nn.LSTM(embed_dim, hidden_dim, num_layers=2, batch_first=True, bidirectional=True)
        self.attention = nn.Linear(2 * hidden_dim, 1)
        self.classifier = nn.Linear(4 * hidden_dim, num_classes)

    def forward(self, tokens, lengths):
        embedded = self.embedding(tokens)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        packed_states, (hidden, cell) = self.lstm(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True)

        mask = torch.arange(states.size(1))[None, :] < lengths[:, None]
        scores = self.attention(states).squeeze(-1)
        weights = scores.masked_fill(~mask, -1e9).softmax(dim=1)
        context = torch.einsum("bt,bth->bh", weights, states)

        last = torch.cat([hidden[-2], hidden[-1]], dim=1)
        return self.classifier(torch.cat([context, last], dim=1))


if __name__ == "__main__":
    torch.manual_seed(0)
    reviews = [torch.randint(1, 5000, (n,)) for n in (23, 9, 17, 5)]
    lengths = torch.tensor([len(review) for review in reviews])
    tokens = pad_sequence(reviews, batch_first=True)

    model = LSTMClassifier()
    logits = model(tokens, lengths)
    print("predicted:", ["positive" if c else "negative" for c in logits.argmax(dim=1).tolist()])
