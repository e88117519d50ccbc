import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH_SIZE = 100
NUM_ROUTING = 3


def squash(v, dim=-1):
    n2 = (v ** 2).sum(dim, keepdim=True)
    return n2 / (1. + n2) * v / torch.sqrt(n2 + 1e-9)


class CapsuleNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 64, 9)
        self.primary = nn.ModuleList([nn.Conv2d(64, 8, 9, stride=2) for _ in range(8)])
        self.route = nn.Parameter(0.01 * torch.randn(10, 8 * 6 * 6, 8, 16))
        self.decoder = nn.Sequential(nn.Linear(160, 128), nn.ReLU(inplace=True), nn.Linear(128, 784), nn.Sigmoid())

    def forward(self, x, y=None):
        x = F.relu(self.conv(x), inplace=True)
        u = torch.stack([c(x).reshape(x.size(0), -1) for c in self.primary], dim=-1)
        u = squash(u)
        priors = u[None, :, :, None, :] @ self.route[:, None, :, :, :]
        logits = torch.zeros_like(priors)
        for i in range(NUM_ROUTING):
            probs = logits.softmax(dim=2)
            outputs = squash((probs * priors).sum(dim=2, keepdim=True))
            if i != NUM_ROUTING - 1:
                logits = logits + (priors * outputs).sum(dim=-1, keepdim=True)
        v = outputs.squeeze().transpose(0, 1)
        classes = (v ** 2).sum(dim=-1) ** 0.5
        classes = F.softmax(classes, dim=-1)
        if y is None:
            _, idx = classes.max(dim=1)
            y = torch.eye(10).index_select(dim=0, index=idx)
        rec = self.decoder((v * y[:, :, None]).reshape(x.size(0), -1))
        return classes, rec


if __name__ == "__main__":
    from torchnet.engine import Engine
    model = CapsuleNet()
    model.cuda()
    print("# parameters:", sum(param.numel() for param in model.parameters()))
