from typing import Optional, Tuple

import torch
from torch import Tensor, nn


def lengths_to_mask(lengths: Tensor, max_len: int) -> Tensor:
    return torch.arange(max_len, device=lengths.device)[None, :] >= lengths[:, None]


class FeedForward(nn.Sequential):
    def __init__(self, d: int, p: float):
        super().__init__(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(p), nn.Linear(4 * d, d), nn.Dropout(p))


class ConvModule(nn.Module):
    def __init__(self, d: int, kernel: int):
        super().__init__()
        assert (kernel - 1) % 2 == 0, "depthwise kernel must be odd"
        self.norm = nn.LayerNorm(d)
        self.pw1, self.pw2 = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 1)
        self.dw = nn.Conv1d(d, d, kernel, padding=(kernel - 1) // 2, groups=d)
        self.bn = nn.BatchNorm1d(d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x).transpose(1, 2)
        y = nn.functional.glu(self.pw1(y), dim=1)
        y = self.pw2(nn.functional.silu(self.bn(self.dw(y))))
        return y.transpose(1, 2)


class ConformerLayer(nn.Module):
    def __init__(self, d: int, heads: int, kernel: int, p: float):
        super().__init__()
        self.ff1, self.ff2, self.conv = FeedForward(d, p), FeedForward(d, p), ConvModule(d, kernel)
        self.norm_attn, self.norm_out = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, dropout=p, batch_first=True)

    def forward(self, x: Tensor, key_padding_mask: Optional[Tensor]) -> Tensor:
        x = x + 0.5 * self.ff1(x)
        y = self.norm_attn(x)
        x = x + self.attn(y, y, y, key_padding_mask=key_padding_mask, need_weights=False)[0]
        x = x + self.conv(x)
        x = x + 0.5 * self.ff2(x)
        return self.norm_out(x)


class SpeechEncoder(nn.Module):
    def __init__(self, input_dim: int, encoder_dim: int, num_layers: int, num_heads: int, vocab_size: int,
                 kernel_size: int = 31, dropout: float = 0.1):
        super().__init__()
        self.subsample = nn.Sequential(nn.Conv2d(1, encoder_dim, 3, 2), nn.ReLU(), nn.Conv2d(encoder_dim, encoder_dim, 3, 2), nn.ReLU())
        self.proj = nn.Linear(encoder_dim * (((input_dim - 1) // 2 - 1) // 2), encoder_dim)
        self.layers = nn.ModuleList([ConformerLayer(encoder_dim, num_heads, kernel_size, dropout) for _ in range(num_layers)])
        self.ctc = nn.Linear(encoder_dim, vocab_size)

    def forward(self, inputs: Tensor, input_lengths: Tensor) -> Tuple[Tensor, Tensor]:
        x = self.subsample(inputs.unsqueeze(1))
        b, c, t, f = x.shape
        x = self.proj(x.permute(0, 2, 1, 3).contiguous().view(b, t, c * f))
        lengths = ((input_lengths - 1) // 2 - 1) // 2
        mask = lengths_to_mask(lengths, t)
        for layer in self.layers:
            x = layer(x, mask)
        return self.ctc(x).log_softmax(-1), lengths
