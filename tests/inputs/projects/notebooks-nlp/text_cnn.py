import torch
import torch.nn as nn
import torch.nn.functional as F


class TextCNN(nn.Module):
    """words -> n-gram filters of several widths -> the strongest answer of each -> class"""

    def __init__(self, args):
        super(TextCNN, self).__init__()
        self.static = args.static
        self.words = nn.Embedding(args.embed_num, args.embed_dim)
        self.ngrams = nn.ModuleList()
        for width in args.kernel_sizes:
            self.ngrams.append(nn.Conv1d(args.embed_dim, args.kernel_num, width))
        self.drop = nn.Dropout(args.dropout)
        self.out = nn.Linear(args.kernel_num * len(args.kernel_sizes), args.class_num)

    def forward(self, text):
        vectors = self.words(text)              # N x W x D
        if self.static:
            vectors = vectors.detach()
        vectors = vectors.transpose(1, 2)
        best = []
        for ngram in self.ngrams:
            answer = F.relu(ngram(vectors))
            best.append(answer.amax(dim=2))
        joined = self.drop(torch.cat(best, 1))
        return self.out(joined)
