import argparse

import torch
from torch.utils.data import DataLoader

from yolo import TinyYolo

parser = argparse.ArgumentParser(description="train tiny yolo")
parser.add_argument("data", help="folder of images")
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--classes", type=int, default=20)
args = parser.parse_args()

device = torch.device("cuda:0")
net = TinyYolo(args.classes).to(device)
opt = torch.optim.Adam(net.parameters())
for epoch in range(args.epochs):
    pass
