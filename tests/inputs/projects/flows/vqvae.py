import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, K, D, beta=0.25):
        super().__init__()
        self.K, self.D, self.beta = K, D, beta
        self.codes = nn.Embedding(K, D)
        self.codes.weight.data.uniform_(-1 / K, 1 / K)

    def forward(self, latents):
        latents = latents.permute(0, 2, 3, 1).contiguous()
        shape = latents.shape
        flat = latents.view(-1, self.D)
        dist = flat.pow(2).sum(1, keepdim=True) + self.codes.weight.pow(2).sum(1) - 2 * flat @ self.codes.weight.t()
        inds = torch.argmin(dist, dim=1).unsqueeze(1)
        one_hot = torch.zeros(inds.size(0), self.K, device=latents.device)
        one_hot.scatter_(1, inds, 1)
        quantized = (one_hot @ self.codes.weight).view(shape)
        loss = F.mse_loss(quantized.detach(), latents) * self.beta + F.mse_loss(quantized, latents.detach())
        quantized = latents + (quantized - latents).detach()
        return quantized.permute(0, 3, 1, 2).contiguous(), loss


class VQVAE(nn.Module):
    def __init__(self, in_channels, embedding_dim, num_embeddings, hidden_dims=None, img_size=64, **kwargs):
        super().__init__()
        if hidden_dims is None:
            hidden_dims = [32, 64]
        modules, c = [], in_channels
        for h in hidden_dims:
            modules.append(nn.Sequential(nn.Conv2d(c, h, 4, 2, 1), nn.LeakyReLU()))
            c = h
        modules.append(nn.Conv2d(c, embedding_dim, 1))
        self.encoder = nn.Sequential(*modules)
        self.vq_layer = VectorQuantizer(num_embeddings, embedding_dim, kwargs.get('beta', 0.25))
        modules = [nn.Conv2d(embedding_dim, hidden_dims[-1], 3, padding=1), nn.LeakyReLU()]
        rev = hidden_dims[::-1]
        for i in range(len(rev)):
            out = rev[i + 1] if i + 1 < len(rev) else in_channels
            modules.append(nn.ConvTranspose2d(rev[i], out, 4, 2, 1))
        self.decoder = nn.Sequential(*modules, nn.Tanh())

    def forward(self, input, **kwargs):
        encoding = self.encoder(input)
        quantized_inputs, vq_loss = self.vq_layer(encoding)
        return [self.decoder(quantized_inputs), input, vq_loss]

    def loss_function(self, *args, **kwargs):
        return {'loss': F.mse_loss(args[0], args[1]) + args[2]}
