from dataclasses import dataclass
from typing import Dict, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from .decoding import decode as decode_function


@dataclass
class ModelDimensions:
    n_mels: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_vocab: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int


def position_table(length: int, channels: int) -> Tensor:
    """fixed waves, half sine half cosine"""
    if channels % 2:
        raise ValueError(f"channels must be even, got {channels}")
    rates = 10000 ** -torch.linspace(0, 1, channels // 2)
    phase = torch.outer(torch.arange(length).float(), rates)
    return torch.cat([phase.sin(), phase.cos()], 1)


class Attention(nn.Module):
    """Of x to itself, or to `memory`. `past` keeps keys and values from step to step."""

    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.q = nn.Linear(n_state, n_state)
        self.kv = nn.Linear(n_state, 2 * n_state)
        self.o = nn.Linear(n_state, n_state)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)

    def forward(self, x: Tensor, memory: Optional[Tensor] = None, mask: Optional[Tensor] = None,
                past: Optional[Dict] = None) -> Tensor:
        q = self.heads(self.q(x))
        k, v = (self.heads(each) for each in self.kv(x if memory is None else memory).chunk(2, -1))
        if past is not None:
            if self in past and memory is None:
                k, v = torch.cat([past[self][0], k], 2), torch.cat([past[self][1], v], 2)
            past[self] = (k, v)
        weights = (q @ k.mT) / q.shape[-1] ** 0.5
        if mask is not None:
            weights = weights + mask[: q.shape[2], : k.shape[2]]
        out = weights.float().softmax(-1).to(v.dtype) @ v
        return self.o(out.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, n_state: int, n_head: int, cross: bool = False):
        super().__init__()
        self.attn, self.ln = Attention(n_state, n_head), nn.LayerNorm(n_state)
        self.cross = Attention(n_state, n_head) if cross else None
        self.cross_ln = nn.LayerNorm(n_state) if cross else None
        self.mlp = nn.Sequential(nn.LayerNorm(n_state), nn.Linear(n_state, 4 * n_state), nn.GELU(),
                                 nn.Linear(4 * n_state, n_state))

    def forward(self, x, memory=None, mask=None, past=None):
        x = x + self.attn(self.ln(x), mask=mask, past=past)
        if self.cross is not None:
            x = x + self.cross(self.cross_ln(x), memory)
        return x + self.mlp(x)


class AudioEncoder(nn.Module):
    def __init__(self, dims: ModelDimensions):
        super().__init__()
        n = dims.n_audio_state
        self.stem = nn.ModuleList([nn.Conv1d(dims.n_mels, n, 3, padding=1), nn.Conv1d(n, n, 3, stride=2, padding=1)])
        self.register_buffer("positions", position_table(dims.n_audio_ctx, n))
        self.blocks = nn.ModuleList(Block(n, dims.n_audio_head) for _ in range(dims.n_audio_layer))
        self.ln = nn.LayerNorm(n)

    def forward(self, mel: Tensor) -> Tensor:
        """mel: (batch, n_mels, 2 * n_audio_ctx)"""
        x = mel
        for conv in self.stem:
            x = F.gelu(conv(x))
        x = x.mT
        assert x.shape[1:] == self.positions.shape, f"audio of {x.shape[1]} frames, want {self.positions.shape[0]}"
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.ln(x)


class TextDecoder(nn.Module):
    def __init__(self, dims: ModelDimensions):
        super().__init__()
        n = dims.n_text_state
        self.tokens = nn.Embedding(dims.n_vocab, n)
        self.positions = nn.Parameter(torch.zeros(dims.n_text_ctx, n))
        self.blocks = nn.ModuleList(Block(n, dims.n_text_head, cross=True) for _ in range(dims.n_text_layer))
        self.ln = nn.LayerNorm(n)
        self.register_buffer("mask", torch.full((dims.n_text_ctx,) * 2, float("-inf")).triu(1), persistent=False)

    def forward(self, tokens: Tensor, audio: Tensor, past: Optional[Dict] = None) -> Tensor:
        offset = next(iter(past.values()))[0].shape[2] if past else 0
        x = self.tokens(tokens) + self.positions[offset: offset + tokens.shape[-1]]
        for block in self.blocks:
            x = block(x, audio, mask=self.mask, past=past)
        x = self.ln(x)
        return (x @ self.tokens.weight.T).float()


class Whisper(nn.Module):
    def __init__(self, dims: ModelDimensions):
        super().__init__()
        self.dims = dims
        self.encoder = AudioEncoder(dims)
        self.decoder = TextDecoder(dims)

    def forward(self, mel: Tensor, tokens: Tensor) -> Tensor:
        return self.decoder(tokens, self.encoder(mel))

    decode = decode_function
