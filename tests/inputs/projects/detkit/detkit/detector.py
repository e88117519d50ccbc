import torch.nn as nn

from .builder import DETECTORS, build_backbone, build_head, build_neck


@DETECTORS.register_module()
class SingleStageDetector(nn.Module):
    """backbone + neck + dense head"""

    def __init__(self, backbone, neck=None, bbox_head=None, train_cfg=None, test_cfg=None):
        super().__init__()
        self.backbone = build_backbone(backbone)
        if neck is not None:
            self.neck = build_neck(neck)
        self.bbox_head = build_head(bbox_head)
        self.train_cfg = train_cfg
        self.test_cfg = test_cfg

    @property
    def with_neck(self):
        return hasattr(self, 'neck') and self.neck is not None

    def extract_feat(self, img):
        x = self.backbone(img)
        if self.with_neck:
            x = self.neck(x)
        return x

    def forward(self, img):
        x = self.extract_feat(img)
        outs = self.bbox_head(x)
        return outs
