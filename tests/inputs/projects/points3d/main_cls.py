import argparse
import h5py
import sklearn.metrics as metrics
import torch
from dgcnn import DGCNN

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description='Point Cloud Recognition')
    parser.add_argument('--exp_name', type=str, default='exp', metavar='N')
    parser.add_argument('--dropout', type=float, default=0.5)
    parser.add_argument('--emb_dims', type=int, default=256, metavar='N')
    parser.add_argument('--k', type=int, default=10, metavar='N')
    args = parser.parse_args()
    model = DGCNN(args).to("cuda")
