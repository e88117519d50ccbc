import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, latent=20):
        super().__init__()
        self.fc1, self.mu, self.logvar = nn.Linear(784, 400), nn.Linear(400, latent), nn.Linear(400, latent)
        self.fc3, self.fc4 = nn.Linear(latent, 400), nn.Linear(400, 784)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def run():
    model = VAE().eval()
    recon, mu, logvar = model(torch.rand(5, 1, 28, 28))
    return F.binary_cross_entropy(recon, torch.zeros(5, 784))


if __name__ == "__main__":
    print(run().item())
