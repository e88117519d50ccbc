import torch
from torch import nn


class GroupedAttention(nn.Module):
    def __init__(self, dim=48, heads=6, kv_heads=2):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.q = nn.Linear(dim, heads * self.head_dim)
        self.kv = nn.Linear(dim, 2 * kv_heads * self.head_dim)
        self.o = nn.Linear(heads * self.head_dim, dim)
        self.register_buffer("causal", torch.tril(torch.ones(128, 128)).bool())

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.head_dim)
        k, v = self.kv(x).chunk(2, dim=-1)
        k = k.view(b, t, self.kv_heads, self.head_dim).repeat_interleave(self.heads // self.kv_heads, dim=2)
        v = v.view(b, t, self.kv_heads, self.head_dim).repeat_interleave(self.heads // self.kv_heads, dim=2)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.head_dim**-0.5
        scores = scores.masked_fill(~self.causal[:t, :t], float("-inf"))
        out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), v)
        return self.o(out.reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.attention = GroupedAttention(dim)
        self.gate = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(dim, dim)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        a, b = self.gate(x).chunk(2, dim=-1)
        return x + self.down(a * torch.sigmoid(b))


if __name__ == "__main__":
    print(Block()(torch.randn(2, 10, 48)).shape)
