import argparse
import numpy as np
import torch
import torch.optim as optim
from utils import load_data
from gat import GAT

parser = argparse.ArgumentParser()
parser.add_argument('--hidden', type=int, default=8)
parser.add_argument('--nb_heads', type=int, default=8)
parser.add_argument('--dropout', type=float, default=0.6)
parser.add_argument('--alpha', type=float, default=0.2)
args = parser.parse_args()
adj, features, labels, idx_train = load_data()
model = GAT(nfeat=features.shape[1], nhid=args.hidden, nclass=int(labels.max()) + 1, dropout=args.dropout,
            nheads=args.nb_heads, alpha=args.alpha)
