from dataclasses import dataclass, field
from typing import Optional


@dataclass
class ModelArgs:
    dim: int = 128
    n_layers: int = 3
    n_heads: int = 8
    n_kv_heads: Optional[int] = None
    vocab_size: int = -1  # set by the tokenizer
    multiple_of: int = 32
    norm_eps: float = 1e-5
    max_batch_size: int = 4
    max_seq_len: int = 128


@dataclass
class MoEArgs:
    num_experts: int
    num_experts_per_tok: int


@dataclass
class SSMConfig:
    d_model: int
    n_layer: int
    vocab_size: int
    d_state: int = 16
    expand: int = 2
    d_conv: int = 4
    dt_rank: int = field(default=0)

    def __post_init__(self):
        self.d_inner = self.expand * self.d_model
        if self.dt_rank == 0:
            self.dt_rank = max(1, self.d_model // 16)
