import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, base_channels=16, latent_dim=32):
        super().__init__()
        c = base_channels
        self.conv1 = nn.Conv2d(3, c, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(2 * c, 4 * c, 3, stride=2, padding=1)
        self.act = nn.GELU()
        self.fc = nn.Linear(4 * c * 4 * 4, latent_dim)

    def forward(self, x):
        x = self.act(self.conv1(x))
        x = self.act(self.conv2(x))
        x = self.act(self.conv3(x))
        return self.fc(x.flatten(1))


class Decoder(nn.Module):
    def __init__(self, base_channels=16, latent_dim=32):
        super().__init__()
        self.c = base_channels
        self.fc = nn.Linear(latent_dim, 4 * self.c * 4 * 4)
        self.net = nn.Sequential(
            nn.ConvTranspose2d(4 * self.c, 2 * self.c, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(2 * self.c, self.c, 4, stride=2, padding=1),
            nn.GELU(),
            nn.ConvTranspose2d(self.c, 3, 4, stride=2, padding=1),
        )

    def forward(self, z):
        h = self.fc(z)
        h = h.view(-1, 4 * self.c, 4, 4)
        return torch.tanh(self.net(h))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()

    def forward(self, x):
        z = self.encoder(x)
        x_hat = self.decoder(z)
        return x_hat


def train_step(model, images):
    x_hat = model(images)
    loss = nn.functional.mse_loss(x_hat, images)
    return loss


if __name__ == "__main__":
    print(train_step(Autoencoder(), torch.rand(5, 3, 32, 32)))
