import torch
import torch.nn.functional as F
from torch import nn

from .config import MoEArgs


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w_in, self.w_out = nn.Linear(dim, 2 * hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, value = self.w_in(x).chunk(2, dim=-1)
        return self.w_out(F.silu(gate) * value)


class MoELayer(nn.Module):
    def __init__(self, experts: list, gate: nn.Module, moe_args: MoEArgs):
        super().__init__()
        assert len(experts) > 0
        self.experts, self.gate, self.args = nn.ModuleList(experts), gate, moe_args

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.view(-1, inputs.shape[-1])
        gate_logits = self.gate(flat)
        weights, selected = torch.topk(gate_logits, self.args.num_experts_per_tok)
        weights = F.softmax(weights, dim=1, dtype=torch.float).to(inputs.dtype)
        results = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token_idx, nth = torch.where(selected == i)
            results[token_idx] += weights[token_idx, nth, None] * expert(flat[token_idx])
        return results.view_as(inputs)


def build_moe(dim, hidden, num_experts=4, top_k=2):
    args = MoEArgs(num_experts, top_k)
    return MoELayer([Expert(dim, hidden) for _ in range(num_experts)], nn.Linear(dim, num_experts, bias=False), args)


class SparseLM(nn.Module):
    def __init__(self, vocab: int, dim: int, depth: int, heads: int):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.attn = nn.ModuleList(nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth))
        self.moe = nn.ModuleList(build_moe(dim, 2 * dim) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))

    def forward(self, input_ids):
        x = self.emb(input_ids)
        causal = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        for attn, moe, norm in zip(self.attn, self.moe, self.norms):
            x = x + attn(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0]
            x = x + moe(norm(x))
        return F.linear(x, self.emb.weight)
