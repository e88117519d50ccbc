import sys

import cv2
import torch

from detkit import build_detector

cfg = {}
exec(open(sys.argv[1]).read(), cfg)
model = build_detector(cfg['model']).cuda().eval()
img = torch.from_numpy(cv2.imread(sys.argv[2])).permute(2, 0, 1)[None].float().cuda()
print(model(img))
