import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)

    def forward(self, src):
        return self.rnn(self.embedding(src))


class Decoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, trg, hidden):
        output, hidden = self.rnn(self.embedding(trg), hidden)
        return self.out(output), hidden


class Seq2Seq(nn.Module):
    def __init__(self, src_vocab_size, trg_vocab_size, hidden_size):
        super().__init__()
        self.encoder = Encoder(src_vocab_size, hidden_size)
        self.decoder = Decoder(trg_vocab_size, hidden_size)

    def forward(self, src, trg):
        _, hidden = self.encoder(src)
        logits, _ = self.decoder(trg[:, :-1], hidden)
        return logits
