import torch
import torch.nn.functional as F
from torch import nn
from tqdm.auto import tqdm

from unet import Unet


def extract(a, t, x_shape):
    b, *_ = t.shape
    out = a.gather(-1, t)
    return out.reshape(b, *((1,) * (len(x_shape) - 1)))


def linear_beta_schedule(timesteps):
    scale = 1000 / timesteps
    return torch.linspace(scale * 0.0001, scale * 0.02, timesteps, dtype=torch.float64)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, *, image_size, timesteps=1000, objective='pred_noise'):
        super().__init__()
        self.model = model
        self.image_size = image_size
        self.objective = objective
        betas = linear_beta_schedule(timesteps)
        alphas = 1. - betas
        alphas_cumprod = torch.cumprod(alphas, dim=0)
        self.num_timesteps = int(betas.shape[0])
        register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
        register_buffer('betas', betas)
        register_buffer('alphas_cumprod', alphas_cumprod)
        register_buffer('sqrt_alphas_cumprod', torch.sqrt(alphas_cumprod))
        register_buffer('sqrt_one_minus_alphas_cumprod', torch.sqrt(1. - alphas_cumprod))

    def q_sample(self, x_start, t, noise=None):
        noise = torch.randn_like(x_start) if noise is None else noise
        return (extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start +
                extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise)

    def p_losses(self, x_start, t, noise=None):
        b, c, h, w = x_start.shape
        noise = torch.randn_like(x_start) if noise is None else noise
        x = self.q_sample(x_start=x_start, t=t, noise=noise)
        model_out = self.model(x, t)
        target = noise if self.objective == 'pred_noise' else x_start
        loss = F.mse_loss(model_out, target, reduction='none')
        return loss.mean()

    @torch.no_grad()
    def sample(self, batch_size=16):
        img = torch.randn(batch_size, 3, self.image_size, self.image_size, device=self.betas.device)
        for t in tqdm(reversed(range(0, self.num_timesteps))):
            img = self.model(img, torch.full((batch_size,), t))
        return img

    def forward(self, img, *args, **kwargs):
        b, c, h, w, device, img_size, = *img.shape, img.device, self.image_size
        assert h == img_size and w == img_size, f'height and width of image must be {img_size}'
        t = torch.randint(0, self.num_timesteps, (b,), device=device).long()
        img = img * 2 - 1
        return self.p_losses(img, t, *args, **kwargs)
