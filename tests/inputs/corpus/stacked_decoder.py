"""Stacked recurrent cells that are handed their states, and a language model that makes its own first state."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class StackedCells(nn.Module):
    def __init__(self, num_layers, input_size, hidden_size, dropout):
        super().__init__()
        self.num_layers, self.dropout = num_layers, nn.Dropout(dropout)
        self.cells = nn.ModuleList()
        for _ in range(num_layers):
            self.cells.append(nn.GRUCell(input_size, hidden_size))
            input_size = hidden_size

    def forward(self, feed, hidden):
        states = []
        for i, cell in enumerate(self.cells):
            feed = cell(feed, hidden[i])
            states += [feed]
            if i + 1 != self.num_layers:
                feed = self.dropout(feed)
        return feed, torch.stack(states)


class WordModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, tied=False):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        sizes = [nhid] * (nlayers - 1) + [ninp if tied else nhid]
        self.rnns = nn.ModuleList([nn.LSTM(a, b) for a, b in zip([ninp, *sizes], sizes)])
        self.sizes, self.decoder = sizes, nn.Linear(sizes[-1], ntoken)

    def forward(self, input, hidden, return_h=False):
        weight = self.encoder.weight * 1.0
        output, states = F.embedding(input, weight), []
        for layer, rnn in enumerate(self.rnns):
            output, state = rnn(output, hidden[layer])
            states.append(state)
        result = self.decoder(output.view(output.size(0) * output.size(1), output.size(2)))
        return (result, states, output) if return_h else (result, states)

    def init_hidden(self, bsz):
        weight = next(self.parameters()).data
        return [(weight.new(1, bsz, n).zero_(), weight.new(1, bsz, n).zero_()) for n in self.sizes]
