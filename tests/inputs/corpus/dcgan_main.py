import torch
import torch.nn as nn

nz, ngf, ndf, nc = 16, 8, 8, 3


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(ndf, 1, 8, 1, 0), nn.Sigmoid()
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    if m.__class__.__name__.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)


if __name__ == "__main__":
    netG = Generator()
    netG.apply(weights_init)
    netD = Discriminator()
    netD.apply(weights_init)
    criterion = nn.BCELoss()
    optD = torch.optim.Adam(netD.parameters(), lr=2e-4)
    optG = torch.optim.Adam(netG.parameters(), lr=2e-4)
    for epoch in range(100):
        real = torch.rand(6, nc, 16, 16)
        netD.zero_grad()
        err = criterion(netD(real), torch.ones(6))
        err.backward()
        fake = netG(torch.randn(6, nz, 1, 1))
        err_fake = criterion(netD(fake.detach()), torch.zeros(6))
        err_fake.backward()
        optD.step()
        optG.step()
        print(epoch, err.item())
