import argparse

import torch
import yaml
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from tqdm import tqdm

from minicls.models import create_model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--config', required=True)
    args = parser.parse_args()
    cfg = yaml.safe_load(open(args.config))
    model = create_model(cfg['model']['name'], num_classes=cfg['model']['num_classes']).cuda()
    data = datasets.CIFAR10(cfg['data']['root'], download=True, transform=transforms.ToTensor())
    loader = DataLoader(data, batch_size=cfg['data']['batch_size'], shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=cfg['optim']['lr'], momentum=cfg['optim']['momentum'])
    for x, y in tqdm(loader):
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()


if __name__ == '__main__':
    main()
