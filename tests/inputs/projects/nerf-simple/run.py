import configargparse
import imageio
import torch

from nerf import RadianceField, Renderer


def config_parser():
    parser = configargparse.ArgumentParser()
    parser.add_argument('--config', is_config_file=True)
    parser.add_argument("--netdepth", type=int, default=8)
    parser.add_argument("--netwidth", type=int, default=128)
    return parser


if __name__ == '__main__':
    torch.set_default_tensor_type('torch.cuda.FloatTensor')
    args = config_parser().parse_args()
    render = Renderer(RadianceField(D=args.netdepth, W=args.netwidth, skips=[4]))
