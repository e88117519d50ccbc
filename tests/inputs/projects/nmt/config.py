from typing import NamedTuple


class CFG(NamedTuple):
    vocab: int = 5000
    emb: int = 64
    hidden: int = 96
    lr: float = 1e-3
