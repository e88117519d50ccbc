import torch
import torch.nn as nn
import torch.nn.functional as F


def block(in_channels, out_channels):
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1), nn.GroupNorm(4, out_channels), nn.ReLU()
    )


class Segmenter(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.enc1 = block(3, 16)
        self.enc2 = block(16, 32)
        self.bottom = block(32, 64)
        self.dec2 = block(64 + 32, 32)
        self.dec1 = block(32 + 16, 16)
        self.classify = nn.Conv2d(16, num_classes, 1)

    def forward(self, image):
        s1 = self.enc1(image)
        s2 = self.enc2(F.max_pool2d(s1, 2))
        bottom = self.bottom(F.max_pool2d(s2, 2))
        up2 = F.interpolate(bottom, scale_factor=2, mode="nearest")
        d2 = self.dec2(torch.cat([up2, s2], dim=1))
        up1 = F.interpolate(d2, scale_factor=2, mode="nearest")
        d1 = self.dec1(torch.cat([up1, s1], dim=1))
        return self.classify(d1)


def dice(logits, target):
    probabilities = logits.softmax(dim=1)
    one_hot = F.one_hot(target, 5).permute(0, 3, 1, 2)
    overlap = (probabilities * one_hot).sum(dim=(2, 3))
    return 1 - overlap.mean()


if __name__ == "__main__":
    images, masks = torch.rand(3, 3, 64, 48), torch.randint(0, 5, (3, 64, 48))
    logits = Segmenter()(images)
    loss = F.cross_entropy(logits, masks) + dice(logits, masks)
