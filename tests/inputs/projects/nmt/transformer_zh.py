"""从零实现 Transformer (机器翻译)"""
import math
import torch
import torch.nn as nn


class 位置编码(nn.Module):
    def __init__(self, d_model, max_len=512):
        super().__init__()
        table = torch.zeros(max_len, d_model)
        position = torch.arange(max_len).unsqueeze(1).float()
        freq = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        table[:, 0::2] = torch.sin(position * freq)
        table[:, 1::2] = torch.cos(position * freq)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.size(1)]


class MultiHead(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0, "d_model 必须能被 n_heads 整除"
        self.h, self.dk = n_heads, d_model // n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        b, n, _ = x.shape
        return x.view(b, n, self.h, self.dk).transpose(1, 2)

    def forward(self, q, k, v, mask=None):
        q, k, v = self.split(self.wq(q)), self.split(self.wk(k)), self.split(self.wv(v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.dk)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))  # 被遮住的位置
        attn = scores.softmax(-1)
        out = (attn @ v).transpose(1, 2).flatten(2)
        return self.wo(out)


class FFN(nn.Sequential):
    def __init__(self, d_model, d_ff, p):
        super().__init__(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(p), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, p):
        super().__init__()
        self.attn, self.ffn = MultiHead(d_model, n_heads), FFN(d_model, d_ff, p)
        self.ln1, self.ln2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask):
        x = self.ln1(x + self.attn(x, x, x, mask))
        return self.ln2(x + self.ffn(x))


class DecoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, p):
        super().__init__()
        self.self_attn, self.cross = MultiHead(d_model, n_heads), MultiHead(d_model, n_heads)
        self.ffn = FFN(d_model, d_ff, p)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model) for _ in range(3)])

    def forward(self, y, memory, src_mask, trg_mask):
        y = self.norms[0](y + self.self_attn(y, y, y, trg_mask))
        y = self.norms[1](y + self.cross(y, memory, memory, src_mask))
        return self.norms[2](y + self.ffn(y))


class Transformer(nn.Module):
    def __init__(self, src_vocab, trg_vocab, d_model, n_heads, d_ff, n_layers, pad_idx, dropout=0.1):
        super().__init__()
        self.pad_idx = pad_idx
        self.src_emb, self.trg_emb = nn.Embedding(src_vocab, d_model), nn.Embedding(trg_vocab, d_model)
        self.pos = 位置编码(d_model)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, n_heads, d_ff, dropout) for _ in range(n_layers)])
        self.generator = nn.Linear(d_model, trg_vocab)

    def make_masks(self, src, trg):
        src_mask = (src != self.pad_idx)[:, None, None, :]
        n = trg.size(1)
        causal = torch.tril(torch.ones(n, n, device=trg.device)).bool()
        trg_mask = (trg != self.pad_idx)[:, None, None, :] & causal
        return src_mask, trg_mask

    def forward(self, src, trg):
        src_mask, trg_mask = self.make_masks(src, trg)
        x = self.pos(self.src_emb(src))
        for layer in self.encoder:
            x = layer(x, src_mask)
        y = self.pos(self.trg_emb(trg))
        for layer in self.decoder:
            y = layer(y, x, src_mask, trg_mask)
        return self.generator(y)
