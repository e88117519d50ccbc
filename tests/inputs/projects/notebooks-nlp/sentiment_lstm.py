import torch
import torch.nn as nn


class SentimentLSTM(nn.Module):
    """Reviews, padded left; the state is handed on from batch to batch"""

    def __init__(self, vocab_size, output_size, embedding_dim, hidden_dim, n_layers, drop_prob=0.5):
        super().__init__()
        self.n_layers, self.hidden_dim = n_layers, hidden_dim
        self.embed = nn.Embedding(vocab_size, embedding_dim)
        self.memory = nn.LSTM(embedding_dim, hidden_dim, n_layers, dropout=drop_prob, batch_first=True)
        self.judge = nn.Sequential(nn.Dropout(0.3), nn.Linear(hidden_dim, output_size), nn.Sigmoid())

    def forward(self, words, state):
        seen, state = self.memory(self.embed(words), state)
        last = seen[:, -1, :]
        opinion = self.judge(last).squeeze(1)
        return opinion, state

    def first_state(self, batch_size):
        weight = next(self.parameters())
        h = weight.new_zeros(self.n_layers, batch_size, self.hidden_dim)
        return h, h.clone()
