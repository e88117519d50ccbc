import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

from .config import ModelArgs


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_table(dim: int, end: int, theta: float = 10000.0):
    inv = 1.0 / theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim)
    angles = torch.outer(torch.arange(end).float(), inv)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: torch.Tensor, table: torch.Tensor):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = torch.view_as_real(pairs * table[None, :, None, :]).flatten(3)
    return turned.type_as(x)


class CachedAttention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_kv = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
        self.n_heads, self.head_dim = args.n_heads, args.dim // args.n_heads
        self.q = nn.Linear(args.dim, self.n_heads * self.head_dim, bias=False)
        self.kv = nn.Linear(args.dim, 2 * self.n_kv * self.head_dim, bias=False)
        self.o = nn.Linear(self.n_heads * self.head_dim, args.dim, bias=False)
        shape = (args.max_batch_size, args.max_seq_len, self.n_kv, self.head_dim)
        self.cache_k, self.cache_v = torch.zeros(shape).cuda(), torch.zeros(shape).cuda()

    def forward(self, x, start_pos: int, table, mask):
        bsz, seqlen, _ = x.shape
        q = self.q(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        k, v = self.kv(x).view(bsz, seqlen, 2, self.n_kv, self.head_dim).unbind(2)
        q, k = rotate(q, table), rotate(k, table)
        self.cache_k = self.cache_k.to(q)
        self.cache_v = self.cache_v.to(q)
        self.cache_k[:bsz, start_pos: start_pos + seqlen] = k
        self.cache_v[:bsz, start_pos: start_pos + seqlen] = v
        keys = self.cache_k[:bsz, : start_pos + seqlen].repeat_interleave(self.n_heads // self.n_kv, 2)
        values = self.cache_v[:bsz, : start_pos + seqlen].repeat_interleave(self.n_heads // self.n_kv, 2)
        q, keys, values = q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        scores = q @ keys.transpose(2, 3) / self.head_dim ** 0.5
        if mask is not None:
            scores = scores + mask
        out = scores.softmax(-1) @ values
        return self.o(out.transpose(1, 2).reshape(bsz, seqlen, -1))


class Layer(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        hidden = args.multiple_of * ((int(8 * args.dim / 3) + args.multiple_of - 1) // args.multiple_of)
        self.attention = CachedAttention(args)
        self.gate, self.up = nn.Linear(args.dim, hidden, bias=False), nn.Linear(args.dim, hidden, bias=False)
        self.down = nn.Linear(hidden, args.dim, bias=False)
        self.n1, self.n2 = RMSNorm(args.dim, args.norm_eps), RMSNorm(args.dim, args.norm_eps)

    def forward(self, x, start_pos, table, mask):
        h = x + self.attention(self.n1(x), start_pos, table, mask)
        y = self.n2(h)
        return h + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, params: ModelArgs):
        super().__init__()
        self.params = params
        self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
        self.layers = nn.ModuleList(Layer(params) for _ in range(params.n_layers))
        self.norm = RMSNorm(params.dim, params.norm_eps)
        self.output = nn.Linear(params.dim, params.vocab_size, bias=False)
        self.table = rotary_table(params.dim // params.n_heads, params.max_seq_len * 2)

    @torch.inference_mode()
    def forward(self, tokens: torch.Tensor, start_pos: int):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        table = self.table.to(h.device)[start_pos: start_pos + seqlen]
        mask = None
        if seqlen > 1:
            mask = torch.full((seqlen, seqlen), float("-inf"), device=tokens.device).triu(1)
            mask = torch.hstack([torch.zeros((seqlen, start_pos), device=tokens.device), mask]).type_as(h)
        for layer in self.layers:
            h = layer(h, start_pos, table, mask)
        return self.output(self.norm(h)).float()
