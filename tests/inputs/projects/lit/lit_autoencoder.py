import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, random_split


class Encoder(nn.Module):
    def __init__(self, width, latent_dim):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, stride=2), nn.GELU(),
                                 nn.Conv2d(width, 2 * width, 3, padding=1, stride=2), nn.GELU(), nn.Flatten(),
                                 nn.Linear(2 * width * 8 * 8, latent_dim))

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, width, latent_dim):
        super().__init__()
        self.linear = nn.Linear(latent_dim, 2 * width * 8 * 8)
        self.net = nn.Sequential(nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.GELU(),
                                 nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        h = self.linear(z)
        h = h.reshape(h.shape[0], -1, 8, 8)
        return self.net(h)


class LitAutoEncoder(pl.LightningModule):
    def __init__(self, base_channel_size: int, latent_dim: int, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = Encoder(base_channel_size, latent_dim)
        self.decoder = Decoder(base_channel_size, latent_dim)
        self.example_input_array = torch.zeros(2, 3, 32, 32)

    def forward(self, x):
        z = self.encoder(x)
        x_hat = self.decoder(z)
        return x_hat

    def _loss(self, batch):
        x, _ = batch
        return F.mse_loss(self.forward(x), x, reduction="none").sum(dim=[1, 2, 3]).mean()

    def training_step(self, batch, batch_idx):
        loss = self._loss(batch)
        self.log('train_loss', loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def cli_main():
    from torchvision.datasets import CIFAR10
    train, val = random_split(CIFAR10('.', download=True), [45000, 5000])
    model = LitAutoEncoder(base_channel_size=32, latent_dim=64)
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=10)
    trainer.fit(model, DataLoader(train, batch_size=256))


if __name__ == "__main__":
    cli_main()
