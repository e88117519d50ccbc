import torch
import torch.nn as nn
from torch import distributions


class Coupling(nn.Module):
    """half of the coordinates decide how the other half is stretched and moved"""

    def __init__(self, keep, width):
        super(Coupling, self).__init__()
        self.register_buffer("keep", keep)
        d = keep.numel()
        self.net = nn.Sequential(nn.Linear(d, width), nn.LeakyReLU(), nn.Linear(width, 2 * d))

    def forward(self, x):
        kept = x * self.keep
        stretch, move = self.net(kept).chunk(2, dim=-1)
        stretch = torch.tanh(stretch) * (1 - self.keep)
        y = kept + (1 - self.keep) * (x * stretch.exp() + move)
        return y, stretch.sum(-1)


class RealNVP(nn.Module):
    def __init__(self, masks, prior, width=64):
        super(RealNVP, self).__init__()
        self.prior = prior
        self.couplings = nn.ModuleList([Coupling(mask, width) for mask in masks])

    def forward(self, x):
        volume = x.new_zeros(x.shape[0])
        for coupling in self.couplings:
            x, change = coupling(x)
            volume += change
        return self.prior.log_prob(x) + volume


masks = torch.tensor([[0., 1.], [1., 0.]] * 3)
prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
flow = RealNVP(masks, prior)
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-4)
for t in range(5001):
    points = torch.randn(100, 2) * 0.1
    loss = -flow(points).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if t % 500 == 0:
        print('iter %s:' % t, 'loss = %.3f' % loss)
