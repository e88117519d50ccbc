model = dict(
    type='SingleStageDetector',
    backbone=dict(type='Darknet', depth=21, out_indices=(3, 4, 5)),
    neck=dict(type='FPN', in_channels=[256, 512, 1024], out_channels=128, num_outs=4),
    bbox_head=dict(type='RetinaHead', num_classes=20, in_channels=128, feat_channels=128, stacked_convs=2))
