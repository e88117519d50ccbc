import argparse
import torch
from models import DLinear, PatchForecast, PeriodNet

if __name__ == '__main__':
    parser = argparse.ArgumentParser(description='forecasting')
    parser.add_argument('--model', type=str, required=True, default='DLinear')
    parser.add_argument('--seq_len', type=int, default=96, help='input sequence length')
    parser.add_argument('--pred_len', type=int, default=24, help='prediction sequence length')
    parser.add_argument('--individual', action='store_true', default=False)
    parser.add_argument('--enc_in', type=int, default=7, help='encoder input size')
    parser.add_argument('--c_out', type=int, default=7)
    parser.add_argument('--patch_len', type=int, default=16)
    parser.add_argument('--stride', type=int, default=8)
    parser.add_argument('--top_k', type=int, default=3)
    parser.add_argument('--d_model', type=int, default=32)
    parser.add_argument('--n_heads', type=int, default=4)
    parser.add_argument('--d_ff', type=int, default=64)
    parser.add_argument('--e_layers', type=int, default=2)
    parser.add_argument('--dropout', type=float, default=0.05)
    args = parser.parse_args()
    model = {'DLinear': DLinear, 'PatchForecast': PatchForecast, 'PeriodNet': PeriodNet}[args.model].Model(args).float().cuda()
