#! /usr/bin/env python
import argparse
import torch
import text_cnn

parser = argparse.ArgumentParser(description='CNN text classificer')
parser.add_argument('-lr', type=float, default=0.001)
parser.add_argument('-dropout', type=float, default=0.5)
parser.add_argument('-embed-dim', type=int, default=128)
parser.add_argument('-kernel-num', type=int, default=100)
parser.add_argument('-kernel-sizes', type=str, default='3,4,5')
parser.add_argument('-static', action='store_true', default=False)
args = parser.parse_args()

import torchtext.data as data
text_field, label_field = data.Field(lower=True), data.Field(sequential=False)
args.embed_num = len(text_field.vocab)
args.class_num = len(label_field.vocab) - 1
args.kernel_sizes = [int(k) for k in args.kernel_sizes.split(',')]
cnn = text_cnn.TextCNN(args)
if torch.cuda.is_available():
    cnn = cnn.cuda()
