import torch
import torch.nn as nn
import torch.nn.parallel
import torch.utils.data
from torch.autograd import Variable
import numpy as np
import torch.nn.functional as F


class TNet(nn.Module):
    """predicts a k x k transform of the points"""

    def __init__(self, k=3):
        super(TNet, self).__init__()
        self.k = k
        self.conv1 = torch.nn.Conv1d(k, 64, 1)
        self.conv2 = torch.nn.Conv1d(64, 256, 1)
        self.fc = nn.Linear(256, k * k)
        self.bn1, self.bn2 = nn.BatchNorm1d(64), nn.BatchNorm1d(256)

    def forward(self, pts):
        batchsize = pts.size()[0]
        y = F.relu(self.bn1(self.conv1(pts)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = torch.max(y, 2, keepdim=True)[0]
        y = y.view(-1, 256)
        iden = Variable(torch.from_numpy(np.eye(self.k).flatten().astype(np.float32))).view(1, self.k * self.k).repeat(batchsize, 1)
        if y.is_cuda:
            iden = iden.cuda()
        return (self.fc(y) + iden).view(-1, self.k, self.k)


class PointNetCls(nn.Module):
    def __init__(self, num_class, feature_transform=False):
        super(PointNetCls, self).__init__()
        self.stn = TNet(3)
        self.fstn = TNet(64) if feature_transform else None
        self.mlp1 = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU())
        self.mlp2 = nn.Sequential(nn.Conv1d(64, 128, 1), nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 512, 1))
        self.head = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, num_class))

    def forward(self, points):
        B, D, N = points.size()
        trans = self.stn(points)
        x = torch.bmm(points.transpose(2, 1), trans).transpose(2, 1)
        x = self.mlp1(x)
        trans_feat = None
        if self.fstn is not None:
            trans_feat = self.fstn(x)
            x = torch.bmm(x.transpose(2, 1), trans_feat).transpose(2, 1)
        x = self.mlp2(x)
        x = x.max(dim=2).values
        return F.log_softmax(self.head(x), dim=-1), trans, trans_feat
