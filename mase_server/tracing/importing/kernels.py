"""Replacements for layers that packages compute by kernels of their own, where the packages are missing.

Mamba and its scan, attention of flash_attn and xformers, rotary embeddings, neighbours of points. They compute what the
packages document, by operations of torch. Sources: "Mamba: Linear-Time Sequence Modeling with Selective State Spaces"
(section 3), the docstrings and READMEs of mamba_ssm, causal_conv1d, flash_attn, xformers.ops and
rotary_embedding_torch, knn_cuda and pointnet2_ops, and the pages of pytorch3d.ops and pytorch3d.loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

# Selective state spaces.


def selective_scan(
    u: torch.Tensor, delta: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor,
    D: torch.Tensor | None = None, z: torch.Tensor | None = None, delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False, return_last_state: bool = False,
) -> Any:  # fmt: skip
    """The outputs [B, D, L] of the states `h' = exp(delta A) h + delta B u`, `y = C h + D u`, gated by z.

    A: [D, N].  B, C: [D, N], [B, N, L] or [B, G, N, L].  The states of all steps are computed at once, as the sum of
    what came in, each decayed since then; in 64 bits, because the decays of long sequences are very small.
    """
    delta = delta if delta_bias is None else delta + delta_bias[:, None]
    delta = F.softplus(delta) if delta_softplus else delta
    decay = (delta[:, :, None] * A[None, :, :, None]).double().cumsum(-1)
    entering = (delta * u)[:, :, None] * _for_each_channel(B, u)
    states = (entering.double() * (-decay).exp()).cumsum(-1) * decay.exp()
    out = (states.to(u.dtype) * _for_each_channel(C, u)).sum(2)
    out = out if D is None else out + u * D[:, None]
    out = out if z is None else out * F.silu(z)
    return (out, states[..., -1].to(u.dtype)) if return_last_state else out


def _for_each_channel(held: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """B or C as [B or 1, D or 1, N, L or 1]."""
    if held.dim() == 2:
        return held[None, :, :, None]
    held = held[:, None] if held.dim() == 3 else held
    return held.repeat_interleave(u.shape[1] // held.shape[1], 1) if held.shape[1] > 1 else held


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, seq_idx: None = None,
    initial_states: None = None, return_final_states: bool = False, final_states_out: None = None,
    activation: str | None = None,
) -> torch.Tensor:  # fmt: skip
    """A convolution of each channel apart over what came before: x is [B, D, L], weight [D, W]."""
    if seq_idx is not None or initial_states is not None or return_final_states:
        raise NotImplementedError("MASE convolves only whole sequences without the package")
    width = weight.shape[1]
    out = F.conv1d(x, weight[:, None], bias, padding=width - 1, groups=x.shape[1])[..., : x.shape[-1]]
    return F.silu(out) if activation in ("silu", "swish") else out


class Mamba(nn.Module):
    """A layer [B, L, D] -> [B, L, D] whose states are chosen by its inputs. options: of kernels and first weights."""

    def __init__(
        self, d_model: int, d_state: int = 16, d_conv: int = 4, expand: int = 2, dt_rank: int | str = "auto",
        conv_bias: bool = True, bias: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner = int(expand * d_model)
        self.dt_rank = math.ceil(d_model / 16) if isinstance(dt_rank, str) else dt_rank
        self.layer_idx = options.get("layer_idx")
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias)
        self.conv1d = nn.Conv1d(
            self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1, bias=conv_bias
        )
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        self.A_log = nn.Parameter(torch.arange(1, d_state + 1).float().log().repeat(self.d_inner, 1))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias)

    def forward(self, hidden_states: torch.Tensor, inference_params: None = None, **kwargs: Any) -> torch.Tensor:
        """Mix each token with what came before it."""
        if inference_params is not None:
            raise NotImplementedError("MASE computes no steps of generation without the package")
        x, z = self.in_proj(hidden_states).transpose(1, 2).chunk(2, dim=1)
        x = F.silu(self.conv1d(x)[..., : x.shape[-1]])
        told = self.x_proj(x.transpose(1, 2)).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        delta, B, C = self.dt_proj(told[0]).transpose(1, 2), told[1].transpose(1, 2), told[2].transpose(1, 2)
        out = selective_scan(x, delta, -self.A_log.exp(), B, C, self.D, z, delta_softplus=True)
        result: torch.Tensor = self.out_proj(out.transpose(1, 2))
        return result


class Mamba2(nn.Module):
    """The same with one decay for each head, states that heads of a group share, and a norm before the last layer."""

    def __init__(
        self, d_model: int, d_state: int = 128, d_conv: int = 4, conv_init: Any = None, expand: int = 2,
        headdim: int = 64, d_ssm: int | None = None, ngroups: int = 1, rmsnorm: bool = True, bias: bool = False,
        conv_bias: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model, self.d_state, self.headdim, self.ngroups = d_model, d_state, headdim, ngroups
        self.d_inner = expand * d_model
        if d_ssm is not None or self.d_inner % headdim:
            raise NotImplementedError("MASE computes only whole heads without the package")
        self.nheads = self.d_inner // headdim
        self.mixed = self.d_inner + 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, self.d_inner + self.mixed + self.nheads, bias=bias)
        self.conv1d = nn.Conv1d(self.mixed, self.mixed, d_conv, groups=self.mixed, padding=d_conv - 1, bias=conv_bias)
        self.dt_bias = nn.Parameter(torch.zeros(self.nheads))
        self.A_log = nn.Parameter(torch.arange(1, self.nheads + 1).float().log())
        self.D = nn.Parameter(torch.ones(self.nheads))
        self.norm = nn.RMSNorm(self.d_inner, eps=1e-5) if rmsnorm else nn.Identity()
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias)

    def forward(self, u: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """Mix each token with what came before it."""
        if any(value is not None for value in kwargs.values()):
            raise NotImplementedError("MASE computes only whole sequences without the package")
        z, mixed, delta = torch.split(self.in_proj(u), [self.d_inner, self.mixed, self.nheads], dim=-1)
        mixed = F.silu(self.conv1d(mixed.transpose(1, 2))[..., : u.shape[1]])
        x, B, C = torch.split(mixed, [self.d_inner, *[self.ngroups * self.d_state] * 2], dim=1)
        B, C = (each.reshape(each.shape[0], self.ngroups, self.d_state, -1) for each in (B, C))
        delta = F.softplus(delta + self.dt_bias).transpose(1, 2).repeat_interleave(self.headdim, 1)
        decay = -self.A_log.exp().repeat_interleave(self.headdim)[:, None].expand(-1, self.d_state)
        out = selective_scan(x, delta, decay, B, C, self.D.repeat_interleave(self.headdim))
        result: torch.Tensor = self.out_proj(self.norm(out.transpose(1, 2) * F.silu(z)))
        return result


# Attention.


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, **options: Any,
) -> torch.Tensor:  # fmt: skip
    """flash_attn's attention of [B, L, heads, width]; fewer heads of k and v serve several of q each.

    A causal mask is aligned to the last query, which sees every key.
    """
    if any(options.get(name) for name in ("return_attn_probs", "alibi_slopes", "softcap")) or tuple(
        options.get("window_size", (-1, -1))
    ) != (-1, -1):
        raise NotImplementedError("MASE computes only plain attention without the package")
    mask = None
    if causal:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) if each.shape[1] < q.shape[1] else each
            for each in (k, v))  # fmt: skip
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, scale=softmax_scale).transpose(1, 2)


def attend_packed(qkv: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """The same of [B, L, 3, heads, width]."""
    q, k, v = qkv.unbind(2)
    return attend(q, k, v, *args, **options)


def attend_sparing(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None = None, p: float = 0.0,
    scale: float | None = None, *, op: Any = None,
) -> torch.Tensor:  # fmt: skip
    """xformers' attention of [B, L, heads, width], or of [B, L, width]."""
    if query.dim() == 3:
        return F.scaled_dot_product_attention(query, key, value, attn_bias, p, scale=scale)
    if query.dim() != 4:
        raise NotImplementedError("MASE computes no attention of groups of heads without the package")
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, attn_bias, p, scale=scale).transpose(1, 2)


class RotaryEmbedding(nn.Module):
    """Turns pairs of features by angles that grow with the place. options: of other tables of angles."""

    def __init__(self, dim: int, custom_freqs: None = None, freqs_for: str = "lang", theta: float = 10_000.0,
                 **options: Any) -> None:  # fmt: skip
        super().__init__()
        if custom_freqs is not None or freqs_for != "lang" or options.get("use_xpos"):
            raise NotImplementedError("MASE computes only the usual angles without the package")
        self.freqs = nn.Parameter(theta ** (-torch.arange(0, dim, 2).float() / dim), requires_grad=False)

    def rotate_queries_or_keys(
        self, t: torch.Tensor, seq_dim: int | None = None, offset: int = 0, scale: float | None = None
    ) -> torch.Tensor:
        """Turn the first features of queries or keys, with places along `seq_dim`, by default the last but one."""
        seq_dim = -2 if seq_dim is None else seq_dim
        angles = (torch.arange(t.shape[seq_dim]) + offset)[:, None] * self.freqs
        angles = angles.repeat_interleave(2, -1)
        if seq_dim % t.dim() == t.dim() - 3:
            angles = angles[:, None]
        turned, rest = t[..., : angles.shape[-1]], t[..., angles.shape[-1] :]
        pairs = torch.stack((-turned[..., 1::2], turned[..., ::2]), -1).flatten(-2)
        return torch.cat((turned * angles.cos() + pairs * angles.sin(), rest), -1)


# Points.


class Neighbours(NamedTuple):
    """The squared distances of the nearest points, their numbers, and the points if they were asked for."""

    dists: torch.Tensor
    idx: torch.Tensor
    knn: torch.Tensor | None


def find_neighbours(
    p1: torch.Tensor, p2: torch.Tensor, lengths1: None = None, lengths2: None = None, norm: int = 2, K: int = 1,
    version: int = -1, return_nn: bool = False, return_sorted: bool = True,
) -> Neighbours:  # fmt: skip
    """The K points of p2 [N, P2, D] that are nearest to each of p1 [N, P1, D]."""
    if lengths1 is not None or lengths2 is not None:
        raise NotImplementedError("MASE compares only whole clouds without the package")
    if {p1.dim(), p2.dim()} != {3} or p1.dtype != p2.dtype or not p1.is_floating_point():
        raise ValueError("Expected points to be of shape (N, P, D), floats of one type")
    apart = (p1[:, :, None] - p2[:, None]).abs().pow(norm).sum(-1)
    dists, idx = apart.topk(K, dim=-1, largest=False, sorted=return_sorted)
    return Neighbours(dists, idx, gather_points(p2, idx) if return_nn else None)


def gather_points(x: torch.Tensor, idx: torch.Tensor, lengths: None = None) -> torch.Tensor:
    """The points [N, L, K, U] of x [N, M, U] at the numbers [N, L, K]."""
    return x[:, :, None].expand(-1, -1, idx.shape[2], -1).gather(1, idx[..., None].expand(-1, -1, -1, x.shape[2]))


def compare_clouds(
    x: torch.Tensor, y: torch.Tensor, x_lengths: None = None, y_lengths: None = None, x_normals: None = None,
    y_normals: None = None, weights: None = None, batch_reduction: str | None = "mean", point_reduction: str = "mean",
    norm: int = 2, single_directional: bool = False, abs_cosine: bool = True,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """The chamfer distance of two clouds [N, P, D], and None for that of their normals, which are not given."""
    others = (x_lengths, y_lengths, x_normals, y_normals, weights)
    if any(each is not None for each in others) or point_reduction not in ("mean", "sum"):
        raise NotImplementedError("MASE compares only whole clouds without normals without the package")
    pairs = [(x, y)] if single_directional else [(x, y), (y, x)]
    nearest = [find_neighbours(one, other, norm=norm).dists[..., 0] for one, other in pairs]
    total = sum(getattr(each, point_reduction)(1) for each in nearest)
    assert isinstance(total, torch.Tensor)
    return (total if batch_reduction is None else getattr(total, batch_reduction)()), None


def sample_apart(
    points: torch.Tensor, lengths: None = None, K: int = 50, random_start_point: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """K points [N, K, D] of each cloud, each as far as possible from those before it, and their numbers."""
    if lengths is not None or not isinstance(K, int) or points.shape[1] < K:
        raise NotImplementedError("MASE samples only whole clouds without the package")
    idx = _number_apart(points, K)
    return gather_points(points, idx[..., None])[:, :, 0], idx


def _number_apart(points: torch.Tensor, count: int) -> torch.Tensor:
    chosen = [torch.zeros(points.shape[0], dtype=torch.long)]
    nearest = points.new_full(points.shape[:2], math.inf)
    for _ in range(count - 1):
        last = points.gather(1, chosen[-1][:, None, None].expand(-1, 1, points.shape[2]))
        nearest = torch.minimum(nearest, (points - last).square().sum(-1))
        chosen.append(nearest.argmax(1))
    return torch.stack(chosen, 1)


def number_apart(xyz: torch.Tensor, npoint: int) -> torch.Tensor:
    """pointnet2_ops' numbers [B, npoint] of points of [B, N, 3]."""
    return _number_apart(xyz, npoint).int()


def gather_features(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Features [B, C, ...] of [B, C, N] at numbers [B, ...]."""
    flat = idx.long().flatten(1)[:, None].expand(-1, features.shape[1], -1)
    return features.gather(2, flat).reshape(*features.shape[:2], *idx.shape[1:])


def find_three(unknown: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The distances [B, n, 3] of the three nearest known points, and their numbers."""
    found = find_neighbours(unknown, known, K=3)
    return found.dists.sqrt(), found.idx.int()


def interpolate_three(features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The weighted sums [B, C, n] of features [B, C, m] at numbers [B, n, 3]."""
    return (gather_features(features, idx) * weight[:, None]).sum(-1)


def find_in_ball(radius: float, nsample: int, xyz: torch.Tensor, new_xyz: torch.Tensor) -> torch.Tensor:
    """The numbers [B, npoint, nsample] of the first points within a radius, filled up with the first of them."""
    apart = torch.cdist(new_xyz, xyz)
    places = torch.arange(xyz.shape[1]).expand_as(apart).masked_fill(apart >= radius, xyz.shape[1])
    places = places.sort(-1)[0][..., :nsample]
    first = places[..., :1].clamp(max=xyz.shape[1] - 1)
    filled = torch.where(places == xyz.shape[1], first, places)
    return torch.cat([filled, first.expand(-1, -1, nsample - filled.shape[-1])], -1).int()


class Nearest(nn.Module):
    """knn_cuda's layer: the distances and numbers of the k points of `ref` that are nearest to each of `query`.

    transpose_mode: are the clouds, and the results, [B, N, D] and not [B, D, N]?
    """

    def __init__(self, k: int, transpose_mode: bool = False) -> None:
        super().__init__()
        self.k, self.transposed = k, transpose_mode

    def forward(self, ref: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compare each query with all of ref."""
        clouds = (ref, query) if self.transposed else (ref.transpose(1, 2), query.transpose(1, 2))
        found = find_neighbours(clouds[1], clouds[0], K=self.k)
        results = (found.dists.sqrt(), found.idx)
        return results if self.transposed else (results[0].transpose(1, 2), results[1].transpose(1, 2))


#: Packages -> names in them -> the replacements.
KERNELS: dict[str, Mapping[str, Any]] = {
    "mamba_ssm": {
        "Mamba": Mamba, "Mamba2": Mamba2, **dict.fromkeys(("selective_scan_fn", "selective_scan_ref"), selective_scan),
    },
    "causal_conv1d": {"causal_conv1d_fn": causal_conv1d},
    "flash_attn": {"flash_attn_func": attend, "flash_attn_qkvpacked_func": attend_packed},
    "xformers": {"memory_efficient_attention": attend_sparing, "unbind": torch.unbind},
    "rotary_embedding_torch": {"RotaryEmbedding": RotaryEmbedding},
    "pytorch3d": {
        "knn_points": find_neighbours, "knn_gather": gather_points, "chamfer_distance": compare_clouds,
        "sample_farthest_points": sample_apart,
    },
    "pointnet2_ops": {
        "furthest_point_sample": number_apart, "ball_query": find_in_ball, "three_nn": find_three,
        "three_interpolate": interpolate_three,
        **dict.fromkeys(("gather_operation", "grouping_operation"), gather_features),
    },
    "knn_cuda": {"KNN": Nearest},
}  # fmt: skip
