import math
import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, w0):
        super().__init__()
        self.w0 = w0

    def forward(self, x):
        return torch.sin(self.w0 * x)


class Siren(nn.Module):
    def __init__(self, dim_in, dim_hidden, dim_out, num_layers, w0=1., w0_initial=30.):
        super().__init__()
        layers = []
        for i in range(num_layers):
            d = dim_in if i == 0 else dim_hidden
            lin = nn.Linear(d, dim_hidden)
            bound = 1 / d if i == 0 else math.sqrt(6 / d) / w0
            nn.init.uniform_(lin.weight, -bound, bound)
            layers += [lin, Sine(w0_initial if i == 0 else w0)]
        self.net = nn.Sequential(*layers, nn.Linear(dim_hidden, dim_out))

    def forward(self, coords, mods=None):
        h = coords
        for k, layer in enumerate(self.net):
            h = layer(h)
            if mods is not None and isinstance(layer, Sine):
                h = h * mods[k // 2][:, None]
        return h


class SirenWrapper(nn.Module):
    """An image as a function of its coordinates."""

    def __init__(self, net, image_width, image_height):
        super().__init__()
        self.net, self.w, self.h = net, image_width, image_height
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, image_height), torch.linspace(-1, 1, image_width), indexing='ij')
        self.register_buffer('grid', torch.stack([ys, xs], dim=-1).reshape(-1, 2))

    def forward(self, img=None):
        out = self.net(self.grid.clone().requires_grad_())
        out = out.reshape(self.h, self.w, -1).permute(2, 0, 1)[None]
        if img is not None:
            return nn.functional.mse_loss(img, out)
        return out


if __name__ == "__main__":
    net = Siren(dim_in=2, dim_hidden=64, dim_out=3, num_layers=3)
    model = SirenWrapper(net, 40, 30)
    opt = torch.optim.Adam(model.parameters(), 1e-4)
    target = torch.rand(1, 3, 30, 40)
    for _ in range(500):
        loss = model(target)
        opt.zero_grad(); loss.backward(); opt.step()
