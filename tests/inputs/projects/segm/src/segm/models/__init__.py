from segm.models.attention_unet import AttentionUNet
from segm.models.deeplab import DeepLabV3Plus
from segm.models.segformer import SegFormerLite
