import sys
from torchtext.data import Field, BucketIterator
from encdec_attention import Uebersetzer

SRC, TRG = Field(), Field()
modell = Uebersetzer(src_vocab=len(SRC.vocab), trg_vocab=len(TRG.vocab), emb=256, hid=512).cuda()
