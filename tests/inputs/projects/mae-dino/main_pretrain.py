import argparse

import torch
import wandb

from mae import MAE


def get_args_parser():
    parser = argparse.ArgumentParser('MAE pre-training', add_help=False)
    parser.add_argument('--batch_size', default=64, type=int)
    parser.add_argument('--input_size', default=96, type=int)
    parser.add_argument('--mask_ratio', default=0.75, type=float)
    parser.add_argument('--data_path', default='/datasets01/imagenet/', type=str)
    parser.add_argument('--device', default='cuda')
    return parser


def main(args):
    wandb.init(project='mae')
    model = MAE(img_size=args.input_size, patch_size=8, embed_dim=192, depth=4, num_heads=3, decoder_embed_dim=96,
                decoder_depth=2, decoder_num_heads=3)
    model.to(torch.device(args.device))


if __name__ == '__main__':
    main(get_args_parser().parse_args())
