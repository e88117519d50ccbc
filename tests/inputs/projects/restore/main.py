import torch

import rcan
from option import args

torch.manual_seed(1)
model = rcan.make_model(args).to(torch.device('cuda'))
