from segm.models import AttentionUNet, DeepLabV3Plus, SegFormerLite
