import torch
import torch.nn as nn

START, STOP = "<s>", "</s>"
tags = {"B": 0, "I": 1, "O": 2, START: 3, STOP: 4}


class Tagger(nn.Module):
    def __init__(self, vocab_size, tag_to_ix, embedding_dim, hidden_dim):
        super().__init__()
        self.tag_to_ix, self.n = tag_to_ix, len(tag_to_ix)
        self.emb = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim // 2, bidirectional=True, batch_first=True)
        self.emissions = nn.Linear(hidden_dim, self.n)
        self.transitions = nn.Parameter(torch.randn(self.n, self.n))
        self.transitions.data[tag_to_ix[START], :] = -10000
        self.transitions.data[:, tag_to_ix[STOP]] = -10000

    def forward(self, words):
        """Viterbi scores and back pointers"""
        feats, _ = self.lstm(self.emb(words))
        feats = self.emissions(feats)
        score = feats.new_full((words.shape[0], self.n), -10000.)
        score[:, self.tag_to_ix[START]] = 0
        pointers = []
        for feat in feats.unbind(1):
            candidates = score[:, None, :] + self.transitions
            best, back = candidates.max(dim=2)
            score = best + feat
            pointers.append(back)
        score = score + self.transitions[self.tag_to_ix[STOP]]
        path_score, last = score.max(1)
        path = [last]
        for back in reversed(pointers):
            last = back.gather(1, last[:, None]).squeeze(1)
            path.append(last)
        path = torch.stack(path[:-1][::-1], dim=1)
        return path_score, path


if __name__ == "__main__":
    model = Tagger(1200, tags, embedding_dim=5, hidden_dim=4)
    with torch.no_grad():
        print(model(torch.randint(0, 1200, (3, 11))))
