import functools

import torch
import torch.nn as nn


def pick_norm(kind='instance'):
    norms = {'batch': functools.partial(nn.BatchNorm2d, momentum=0.2), 'instance': nn.InstanceNorm2d, 'none': None}
    if kind not in norms:
        raise NotImplementedError('no norm layer called [%s]' % kind)
    return norms[kind]


def put_on_gpus(net, gpu_ids=[]):
    if len(gpu_ids) > 0:
        assert torch.cuda.is_available()
        net = nn.DataParallel(net.to(gpu_ids[0]), gpu_ids)
    for m in net.modules():
        if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(m.weight.data, 0.0, 0.02)
    return net


def make_translator(opt, which, gpu_ids=[]):
    norm = pick_norm(opt.norm)
    if which == 'resnet':
        net = Translator(opt.input_nc, opt.output_nc, opt.ngf, norm, opt.n_blocks)
    elif which == 'unet':
        net = NestedUnet(opt.input_nc, opt.output_nc, opt.ngf, opt.num_downs, norm)
    else:
        raise NotImplementedError('[%s] is unknown' % which)
    return put_on_gpus(net, gpu_ids)


class ReflectBlock(nn.Module):
    def __init__(self, nc, norm):
        super(ReflectBlock, self).__init__()
        half = lambda: [nn.ReflectionPad2d(1), nn.Conv2d(nc, nc, 3), norm(nc)]
        self.body = nn.Sequential(*half(), nn.ReLU(True), *half())

    def forward(self, x):
        out = self.body(x)
        out += x
        return out


class Translator(nn.Module):
    """down twice, n_blocks at the bottom, up twice"""

    def __init__(self, input_nc, output_nc, ngf, norm, n_blocks):
        super(Translator, self).__init__()
        assert n_blocks >= 0
        stack = [nn.ReflectionPad2d(3), nn.Conv2d(input_nc, ngf, 7), norm(ngf), nn.ReLU(True)]
        nc = ngf
        for _ in range(2):
            stack += [nn.Conv2d(nc, nc * 2, 3, stride=2, padding=1), norm(nc * 2), nn.ReLU(True)]
            nc *= 2
        stack.extend(ReflectBlock(nc, norm) for _ in range(n_blocks))
        for _ in range(2):
            stack += [nn.ConvTranspose2d(nc, nc // 2, 3, stride=2, padding=1, output_padding=1), norm(nc // 2), nn.ReLU(True)]
            nc //= 2
        stack += [nn.ReflectionPad2d(3), nn.Conv2d(nc, output_nc, 7), nn.Tanh()]
        self.model = nn.Sequential(*stack)

    def forward(self, real):
        fake = self.model(real)
        return fake


class Level(nn.Module):
    def __init__(self, outer, inner, norm, inside=None):
        super(Level, self).__init__()
        self.down = nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(outer, inner, 4, 2, 1))
        self.inside = inside
        self.up = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(inner * (1 if inside is None else 2), outer, 4, 2, 1), norm(outer))

    def forward(self, x):
        y = self.down(x)
        if self.inside is not None:
            y = self.inside(y)
        return torch.cat([x, self.up(y)], 1)


class NestedUnet(nn.Module):
    def __init__(self, input_nc, output_nc, ngf, num_downs, norm):
        super(NestedUnet, self).__init__()
        level = None
        for i in reversed(range(num_downs)):
            level = Level(min(ngf * 2 ** i, ngf * 8), min(ngf * 2 ** (i + 1), ngf * 8), norm, level)
        self.first = nn.Conv2d(input_nc, ngf, 3, padding=1)
        self.levels = level
        self.last = nn.Conv2d(2 * ngf, output_nc, 3, padding=1)

    def forward(self, real):
        features = self.first(real)
        features = self.levels(features)
        return torch.tanh(self.last(features))


class PatchCritic(nn.Module):
    def __init__(self, input_nc, ndf, n_layers, norm):
        super(PatchCritic, self).__init__()
        layers, nc = [nn.Conv2d(input_nc, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True)], ndf
        for _ in range(n_layers):
            layers += [nn.Conv2d(nc, 2 * nc, 4, 2, 1), norm(2 * nc), nn.LeakyReLU(0.2, True)]
            nc = 2 * nc
        self.model = nn.Sequential(*layers, nn.Conv2d(nc, 1, 4, padding=1))

    def forward(self, image):
        """One number for each patch"""
        return self.model(image)
