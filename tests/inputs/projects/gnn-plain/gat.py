import torch
import torch.nn as nn
import torch.nn.functional as F


class Heads(nn.Module):
    """all heads at once; adj: (N, N), more than 0 where there is an edge"""

    def __init__(self, nfeat, nhid, nheads, dropout, alpha, join):
        super(Heads, self).__init__()
        self.shape = (nheads, nhid)
        self.project = nn.Linear(nfeat, nheads * nhid, bias=False)
        self.target = nn.Parameter(torch.randn(nheads, nhid) * 0.1)
        self.source = nn.Parameter(torch.randn(nheads, nhid) * 0.1)
        self.dropout, self.alpha, self.join = dropout, alpha, join

    def forward(self, x, adj):
        h = self.project(x).view(x.size(0), *self.shape)
        score = (h * self.target).sum(-1)[:, None] + (h * self.source).sum(-1)[None]
        score = F.leaky_relu(score, self.alpha)
        score = score.masked_fill(adj.unsqueeze(-1) <= 0, -1e9)
        weight = F.dropout(score.softmax(dim=1), self.dropout, training=self.training)
        out = torch.einsum('ijh,jhd->ihd', weight, h)
        return out.flatten(1) if self.join else out.mean(1)


class GAT(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout, alpha, nheads):
        """Dense version."""
        super(GAT, self).__init__()
        self.dropout = nn.Dropout(dropout)
        self.first = Heads(nfeat, nhid, nheads, dropout, alpha, join=True)
        self.second = Heads(nheads * nhid, nclass, 1, dropout, alpha, join=False)

    def forward(self, x, adj):
        x = self.dropout(x)
        x = F.elu(self.first(x, adj))
        x = self.dropout(x)
        logits = self.second(x, adj)
        return logits.log_softmax(dim=1)
