import argparse

parser = argparse.ArgumentParser(description='SR')
parser.add_argument('--scale', type=str, default='4')
parser.add_argument('--rgb_range', type=int, default=255)
parser.add_argument('--n_colors', type=int, default=3)
parser.add_argument('--n_feats', type=int, default=64)
parser.add_argument('--n_resblocks', type=int, default=2)
parser.add_argument('--n_resgroups', type=int, default=2)
parser.add_argument('--reduction', type=int, default=16)
args = parser.parse_args()
args.scale = list(map(lambda x: int(x), args.scale.split('+')))
