import os
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
import numpy as np
import torch
from torch import nn
from torch.autograd import Variable

SHAPE = (1, 28, 28)
PIXELS = int(np.prod(SHAPE))
Z = 100
LAMBDA = 10
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [Z, 128, 256, 512]
        self.stack = nn.Sequential()
        for i, (a, b) in enumerate(zip(widths, widths[1:])):
            self.stack.add_module("fc%d" % i, nn.Linear(a, b))
            if i:
                self.stack.add_module("bn%d" % i, nn.BatchNorm1d(b, momentum=0.2))
            self.stack.add_module("act%d" % i, nn.LeakyReLU(0.2, inplace=True))
        self.last = nn.Linear(widths[-1], PIXELS)

    def forward(self, z):
        hidden = self.stack(z)
        flat = torch.tanh(self.last(hidden))
        return flat.view(-1, *SHAPE)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(PIXELS, 512), nn.Linear(512, 256), nn.Linear(256, 1)

    def forward(self, img):
        x = img.flatten(1)
        x = nn.functional.leaky_relu(self.fc1(x), 0.2)
        x = nn.functional.leaky_relu(self.fc2(x), 0.2)
        return self.fc3(x)


def penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1, device=real.device)
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between).sum()
    (slope,) = torch.autograd.grad(score, between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).pow(2).mean()


if __name__ == "__main__":
    painter, critic = Painter().to(device), Critic().to(device)
    opt_p = torch.optim.Adam(painter.parameters(), lr=1e-4, betas=(0., 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0., 0.9))
    for step in range(100000):
        real = torch.rand(64, *SHAPE, device=device)
        noise = Variable(torch.Tensor(np.random.normal(0, 1, (64, Z)))).to(device)
        fake = painter(noise)
        loss = critic(fake.detach()).mean() - critic(real).mean() + LAMBDA * penalty(critic, real, fake.detach())
        opt_c.zero_grad()
        loss.backward()
        opt_c.step()
        if step % 5 == 0:
            opt_p.zero_grad()
            (-critic(painter(noise)).mean()).backward()
            opt_p.step()
        print("[step %d] critic %.4f" % (step, loss.item()))
