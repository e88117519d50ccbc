from accelerate import Accelerator
import torch

from gaussian_diffusion import GaussianDiffusion
from unet import Unet

accelerator = Accelerator()
model = Unet(dim=32, dim_mults=(1, 2, 4), channels=3)
diffusion = GaussianDiffusion(model, image_size=64, timesteps=1000)
opt = torch.optim.Adam(diffusion.parameters(), lr=8e-5)
diffusion, opt = accelerator.prepare(diffusion, opt)
