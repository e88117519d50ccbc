from .model import CLIP
from .tokenizer import tokenize
