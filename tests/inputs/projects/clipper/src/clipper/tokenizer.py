import gzip
from functools import lru_cache

import ftfy
import regex as re
import torch


@lru_cache()
def default_bpe():
    return gzip.open("bpe_simple_vocab_16e6.txt.gz").read().decode("utf-8").split("\n")


def tokenize(texts, context_length=77):
    result = torch.zeros(len(texts), context_length, dtype=torch.long)
    for i, text in enumerate(texts):
        words = re.findall(r"\p{L}+", ftfy.fix_text(text))
        result[i, : len(words)] = torch.tensor([default_bpe().index(w) for w in words])
    return result
