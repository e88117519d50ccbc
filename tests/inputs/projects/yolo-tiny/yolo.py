from __future__ import division

import cv2
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

from utils import *

CUDA = torch.cuda.is_available()

ANCHORS = [(10, 14), (23, 27), (37, 58), (81, 82), (135, 169), (344, 319)]


class EmptyLayer(nn.Module):
    def __init__(self):
        super(EmptyLayer, self).__init__()

    def forward(self, x):
        return x


class DetectionLayer(nn.Module):
    def __init__(self, anchors, num_classes, img_dim):
        super(DetectionLayer, self).__init__()
        self.anchors = anchors
        self.num_classes = num_classes
        self.img_dim = img_dim

    def forward(self, prediction):
        batch_size = prediction.size(0)
        grid_size = prediction.size(2)
        stride = self.img_dim // grid_size
        bbox_attrs = 5 + self.num_classes
        num_anchors = len(self.anchors)

        prediction = prediction.view(batch_size, bbox_attrs * num_anchors, grid_size * grid_size)
        prediction = prediction.transpose(1, 2).contiguous()
        prediction = prediction.view(batch_size, grid_size * grid_size * num_anchors, bbox_attrs)
        anchors = [(a[0] / stride, a[1] / stride) for a in self.anchors]

        # Sigmoid the centre_X, centre_Y and object confidence
        prediction[:, :, 0] = torch.sigmoid(prediction[:, :, 0])
        prediction[:, :, 1] = torch.sigmoid(prediction[:, :, 1])
        prediction[:, :, 4] = torch.sigmoid(prediction[:, :, 4])

        grid = np.arange(grid_size)
        a, b = np.meshgrid(grid, grid)
        x_offset = torch.FloatTensor(a).view(-1, 1)
        y_offset = torch.FloatTensor(b).view(-1, 1)
        if CUDA:
            x_offset = x_offset.cuda()
            y_offset = y_offset.cuda()
        x_y_offset = torch.cat((x_offset, y_offset), 1).repeat(1, num_anchors).view(-1, 2).unsqueeze(0)
        prediction[:, :, :2] += x_y_offset

        anchors = torch.FloatTensor(anchors)
        anchors = anchors.repeat(grid_size * grid_size, 1).unsqueeze(0)
        prediction[:, :, 2:4] = torch.exp(prediction[:, :, 2:4]) * anchors
        prediction[:, :, 5: 5 + self.num_classes] = torch.sigmoid((prediction[:, :, 5: 5 + self.num_classes]))
        prediction[:, :, :4] *= stride
        return prediction


def conv(cin, cout, k, s=1):
    return nn.Sequential(nn.Conv2d(cin, cout, k, s, k // 2, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1))


class TinyYolo(nn.Module):
    def __init__(self, num_classes, img_dim=416):
        super(TinyYolo, self).__init__()
        out = 3 * (5 + num_classes)
        self.feature = nn.Sequential(
            conv(3, 16, 3), nn.MaxPool2d(2, 2), conv(16, 32, 3), nn.MaxPool2d(2, 2), conv(32, 64, 3),
            nn.MaxPool2d(2, 2), conv(64, 128, 3), nn.MaxPool2d(2, 2), conv(128, 256, 3))
        self.deep = nn.Sequential(nn.MaxPool2d(2, 2), conv(256, 512, 3), conv(512, 256, 1))
        self.head_big = nn.Sequential(conv(256, 512, 3), nn.Conv2d(512, out, 1))
        self.reduce = conv(256, 128, 1)
        self.head_small = nn.Sequential(conv(128 + 256, 256, 3), nn.Conv2d(256, out, 1))
        self.yolo_big = DetectionLayer(ANCHORS[3:], num_classes, img_dim)
        self.yolo_small = DetectionLayer(ANCHORS[:3], num_classes, img_dim)
        self.route = EmptyLayer()

    def forward(self, x):
        feat = self.feature(x)
        deep = self.deep(feat)
        det1 = self.yolo_big(self.head_big(deep))
        up = F.interpolate(self.reduce(deep), scale_factor=2, mode="nearest")
        merged = self.route(torch.cat((up, feat), 1))
        det2 = self.yolo_small(self.head_small(merged))
        detections = torch.cat((det1, det2), 1)
        return detections


def get_test_input(path):
    img = cv2.imread(path)
    img = cv2.resize(img, (416, 416))
    img_ = img[:, :, ::-1].transpose((2, 0, 1))
    img_ = img_[np.newaxis, :, :, :] / 255.0
    return Variable(torch.from_numpy(img_).float())


if __name__ == "__main__":
    model = TinyYolo(80)
    model.load_state_dict(torch.load("tiny.pth"))
    model.eval()
    inp = get_test_input("imgs/dog.png")
    if CUDA:
        model.cuda()
        inp = inp.cuda()
    with torch.no_grad():
        print(model(inp)[0, :5])
