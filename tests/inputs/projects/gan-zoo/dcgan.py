from __future__ import print_function
import argparse, os, random
import torch
import torch.nn as nn
import torch.optim as optim
import torch.backends.cudnn as cudnn
import torchvision.datasets as dset
import torchvision.transforms as T

ap = argparse.ArgumentParser()
ap.add_argument('--data', required=True, help='folder with images')
ap.add_argument('--kind', required=True, choices=['faces', 'digits'])
ap.add_argument('--bs', type=int, default=64)
ap.add_argument('--nz', type=int, default=100, help='size of the noise')
ap.add_argument('--width', type=int, default=64)
ap.add_argument('--epochs', type=int, default=25)
ap.add_argument('--seed', type=int)
opt = ap.parse_args()
print(opt)

if opt.seed is None:
    opt.seed = random.randint(1, 10000)
torch.manual_seed(opt.seed)
cudnn.benchmark = True
device = torch.device("cuda:0")
channels = 1 if opt.kind == 'digits' else 3
os.makedirs('samples', exist_ok=True)


def normal_weights(m):
    name = m.__class__.__name__
    if 'Conv' in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif 'BatchNorm' in name:
        nn.init.normal_(m.weight, 1.0, 0.02)


def up(cin, cout, k=4, s=2, p=1):
    return [nn.ConvTranspose2d(cin, cout, k, s, p, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True)]


class G(nn.Module):
    def __init__(self):
        super(G, self).__init__()
        w = opt.width
        self.net = nn.Sequential(*up(opt.nz, 8 * w, 4, 1, 0), *up(8 * w, 4 * w), *up(4 * w, w),
                                 nn.ConvTranspose2d(w, channels, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, noise):
        noise = noise.view(noise.size(0), opt.nz, 1, 1)
        return self.net(noise)


class D(nn.Module):
    def __init__(self):
        super(D, self).__init__()
        w = opt.width
        self.c1 = nn.Conv2d(channels, w, 4, 2, 1)
        self.c2, self.b2 = nn.Conv2d(w, 4 * w, 4, 2, 1), nn.BatchNorm2d(4 * w)
        self.c3, self.b3 = nn.Conv2d(4 * w, 8 * w, 4, 2, 1), nn.BatchNorm2d(8 * w)
        self.c4 = nn.Conv2d(8 * w, 1, 4, 1, 0)

    def forward(self, image):
        x = torch.nn.functional.leaky_relu(self.c1(image), 0.2)
        x = torch.nn.functional.leaky_relu(self.b2(self.c2(x)), 0.2)
        x = torch.nn.functional.leaky_relu(self.b3(self.c3(x)), 0.2)
        return self.c4(x).view(-1).sigmoid()


g, d = G().to(device).apply(normal_weights), D().to(device).apply(normal_weights)
bce = nn.BCELoss()
loader = torch.utils.data.DataLoader(
    dset.ImageFolder(opt.data, T.Compose([T.Resize(32), T.CenterCrop(32), T.ToTensor()])), opt.bs, shuffle=True)
opt_d, opt_g = (optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999)) for net in (d, g))
for epoch in range(opt.epochs):
    for real, _ in loader:
        real = real.to(device)
        fake = g(torch.randn(real.size(0), opt.nz, device=device))
        loss_d = bce(d(real), torch.ones(real.size(0)).to(device)) + bce(d(fake.detach()), torch.zeros(real.size(0)).to(device))
        opt_d.zero_grad(); loss_d.backward(); opt_d.step()
        loss_g = bce(d(fake), torch.ones(real.size(0)).to(device))
        opt_g.zero_grad(); loss_g.backward(); opt_g.step()
    torch.save(g.state_dict(), 'samples/g_%d.pth' % epoch)
