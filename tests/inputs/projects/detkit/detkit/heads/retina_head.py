import math

import torch
import torch.nn as nn

from ..builder import HEADS

try:
    from detkit.ops import nms  # compiled
except ImportError:
    nms = None


def multi_apply(func, *args):
    results = map(func, *args)
    return tuple(map(list, zip(*results)))


@HEADS.register_module()
class RetinaHead(nn.Module):
    def __init__(self, num_classes, in_channels, feat_channels, stacked_convs=4, num_anchors=9):
        super().__init__()
        self.num_classes = num_classes
        self.cls_convs = nn.ModuleList()
        self.reg_convs = nn.ModuleList()
        for i in range(stacked_convs):
            chn = in_channels if i == 0 else feat_channels
            self.cls_convs.append(nn.Conv2d(chn, feat_channels, 3, padding=1))
            self.reg_convs.append(nn.Conv2d(chn, feat_channels, 3, padding=1))
        self.retina_cls = nn.Conv2d(feat_channels, num_anchors * num_classes, 3, padding=1)
        self.retina_reg = nn.Conv2d(feat_channels, num_anchors * 4, 3, padding=1)
        self.init_weights()

    def init_weights(self):
        nn.init.constant_(self.retina_cls.bias, -math.log((1 - 0.01) / 0.01))

    def forward_single(self, x):
        cls_feat = x
        reg_feat = x
        for cls_conv in self.cls_convs:
            cls_feat = cls_conv(cls_feat).relu()
        for reg_conv in self.reg_convs:
            reg_feat = reg_conv(reg_feat).relu()
        cls_score = self.retina_cls(cls_feat)
        bbox_pred = self.retina_reg(reg_feat)
        return cls_score, bbox_pred

    def forward(self, feats):
        return multi_apply(self.forward_single, feats)

    def get_bboxes(self, cls_scores, bbox_preds, score_thr=0.05):
        if nms is None:
            raise RuntimeError("compile the ops first")
        flat = torch.cat([s.permute(0, 2, 3, 1).reshape(s.size(0), -1, self.num_classes) for s in cls_scores], 1)
        return nms(flat.sigmoid(), bbox_preds, score_thr)
