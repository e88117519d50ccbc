import albumentations as A
import cv2
import torch

from segm import AttentionUNet, DeepLabV3Plus, SegFormerLite

MODELS = {
    "attunet": lambda: AttentionUNet(n_channels=3, n_classes=2, base_c=16),
    "deeplab": lambda: DeepLabV3Plus(num_classes=21, output_stride=16, encoder_channels=(16, 32, 64, 128)),
    "segformer": lambda: SegFormerLite([32, 64, 160, 256], [1, 2, 5, 8], [2, 2, 2, 2], [8, 4, 2, 1], num_classes=19),
}

if __name__ == "__main__":
    import sys
    net = MODELS[sys.argv[1]]().to("cuda")
    aug = A.Compose([A.RandomCrop(256, 256)])
    opt = torch.optim.AdamW(net.parameters(), lr=6e-5)
