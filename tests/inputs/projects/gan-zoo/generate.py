import argparse

import torch
from stylegan_mini import Generator

if __name__ == '__main__':
    device = 'cuda'
    parser = argparse.ArgumentParser()
    parser.add_argument('--size', type=int, default=64)
    parser.add_argument('--sample', type=int, default=1)
    parser.add_argument('--ckpt', type=str, default="stylegan2.pt")
    args = parser.parse_args()
    args.latent = 512
    args.n_mlp = 8
    g_ema = Generator(args.size, args.latent, args.n_mlp, channel_multiplier=2).to(device)
    checkpoint = torch.load(args.ckpt)
    g_ema.load_state_dict(checkpoint['g_ema'])
    sample_z = torch.randn(args.sample, args.latent, device=device)
    sample, _ = g_ema([sample_z])
