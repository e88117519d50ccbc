import torch
import torch.nn as nn


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x ** 2, dim=1, keepdim=True)
    dist = -xx - inner - xx.transpose(2, 1)
    return dist.topk(k=k, dim=-1)[1]


def edge_features(x, k):
    b, c, n = x.shape
    idx = knn(x, k)
    device = torch.device('cuda')
    base = torch.arange(0, b, device=device).view(-1, 1, 1) * n
    idx = (idx + base).view(-1)
    flat = x.transpose(2, 1).contiguous().view(b * n, -1)
    neighbours = flat[idx, :].view(b, n, k, c)
    centre = flat.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((neighbours - centre, centre), dim=3).permute(0, 3, 1, 2)


class DGCNN(nn.Module):
    def __init__(self, args, output_channels=40):
        super(DGCNN, self).__init__()
        self.args = args
        self.k = args.k
        act = nn.LeakyReLU(negative_slope=0.2)
        self.conv1 = nn.Sequential(nn.Conv2d(6, 32, 1, bias=False), nn.BatchNorm2d(32), act)
        self.conv2 = nn.Sequential(nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64), act)
        self.conv3 = nn.Sequential(nn.Conv1d(96, args.emb_dims, 1, bias=False), nn.BatchNorm1d(args.emb_dims), act)
        self.linear1 = nn.Linear(args.emb_dims * 2, 128)
        self.dp1 = nn.Dropout(p=args.dropout)
        self.linear2 = nn.Linear(128, output_channels)

    def forward(self, x):
        batch_size = x.size(0)
        x1 = self.conv1(edge_features(x, self.k)).max(dim=-1, keepdim=False)[0]
        x2 = self.conv2(edge_features(x1, self.k)).max(dim=-1, keepdim=False)[0]
        x = self.conv3(torch.cat((x1, x2), dim=1))
        p1 = nn.functional.adaptive_max_pool1d(x, 1).view(batch_size, -1)
        p2 = nn.functional.adaptive_avg_pool1d(x, 1).view(batch_size, -1)
        x = torch.cat((p1, p2), 1)
        x = self.dp1(nn.functional.leaky_relu(self.linear1(x)))
        return self.linear2(x)
