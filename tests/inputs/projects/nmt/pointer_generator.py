import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from config import CFG


class Summarizer(nn.Module):
    """Copies words from the article where the vocabulary has none."""

    def __init__(self, cfg: CFG):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab, cfg.emb)
        self.encoder = nn.LSTM(cfg.emb, cfg.hidden, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTMCell(cfg.emb, 2 * cfg.hidden)
        self.attend = nn.Linear(2 * cfg.hidden, 2 * cfg.hidden, bias=False)
        self.p_gen = nn.Linear(4 * cfg.hidden + cfg.emb, 1)
        self.vocab = nn.Linear(4 * cfg.hidden, cfg.vocab)

    def encode(self, article, article_len):
        packed = pack_padded_sequence(self.embed(article), article_len.cpu(), batch_first=True, enforce_sorted=False)
        states, (h, c) = self.encoder(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=article.size(1))
        h = h.transpose(0, 1).reshape(article.size(0), -1)
        c = c.transpose(0, 1).reshape(article.size(0), -1)
        return states, (h, c)

    def forward(self, article, article_len, summary):
        states, (h, c) = self.encode(article, article_len)
        keys = self.attend(states)
        dists = []
        for step in range(summary.size(1)):
            word = self.embed(summary[:, step])
            h, c = self.decoder(word, (h, c))
            weights = torch.softmax(torch.einsum("bld,bd->bl", keys, h), dim=1)
            context = torch.einsum("bl,bld->bd", weights, states)
            p = torch.sigmoid(self.p_gen(torch.cat((h, context, word), dim=1)))
            gen = torch.softmax(self.vocab(torch.cat((h, context), dim=1)), dim=1) * p
            final = gen.scatter_add(1, article, weights * (1 - p))
            dists.append(final)
        return torch.stack(dists, 1)
