import numpy as np
import torch


class PointWiseFeedForward(torch.nn.Module):
    def __init__(self, hidden_units, dropout_rate):
        super().__init__()
        self.conv1 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)
        self.drop = torch.nn.Dropout(p=dropout_rate)
        self.conv2 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)

    def forward(self, inputs):
        out = self.conv2(self.drop(torch.relu(self.conv1(inputs.transpose(-1, -2)))))
        return out.transpose(-1, -2) + inputs


class NextItem(torch.nn.Module):
    def __init__(self, user_num, item_num, args):
        super().__init__()
        self.dev = args.device
        self.item_emb = torch.nn.Embedding(item_num + 1, args.hidden_units, padding_idx=0)
        self.pos_emb = torch.nn.Embedding(args.maxlen, args.hidden_units)
        self.attn, self.ffn = torch.nn.ModuleList(), torch.nn.ModuleList()
        for _ in range(args.num_blocks):
            self.attn.append(torch.nn.MultiheadAttention(args.hidden_units, args.num_heads, args.dropout_rate))
            self.ffn.append(PointWiseFeedForward(args.hidden_units, args.dropout_rate))

    def log2feats(self, log_seqs):
        seqs = self.item_emb(torch.LongTensor(log_seqs).to(self.dev))
        positions = np.tile(np.array(range(log_seqs.shape[1])), [log_seqs.shape[0], 1])
        seqs = seqs + self.pos_emb(torch.LongTensor(positions).to(self.dev))
        tl = seqs.shape[1]
        attention_mask = ~torch.tril(torch.ones((tl, tl), dtype=torch.bool, device=self.dev))
        for attn, ffn in zip(self.attn, self.ffn):
            seqs = seqs.transpose(0, 1)
            out, _ = attn(seqs, seqs, seqs, attn_mask=attention_mask)
            seqs = ffn((seqs + out).transpose(0, 1))
        return seqs

    def forward(self, user_ids, log_seqs, pos_seqs, neg_seqs):
        log_feats = self.log2feats(log_seqs)
        pos_embs = self.item_emb(torch.LongTensor(pos_seqs).to(self.dev))
        neg_embs = self.item_emb(torch.LongTensor(neg_seqs).to(self.dev))
        pos_logits = (log_feats * pos_embs).sum(dim=-1)
        neg_logits = (log_feats * neg_embs).sum(dim=-1)
        return pos_logits, neg_logits


if __name__ == '__main__':
    import argparse
    p = argparse.ArgumentParser()
    p.add_argument('--dataset', required=True)
    p.add_argument('--maxlen', default=50, type=int)
    p.add_argument('--hidden_units', default=48, type=int)
    p.add_argument('--num_blocks', default=2, type=int)
    p.add_argument('--num_heads', default=1, type=int)
    p.add_argument('--dropout_rate', default=0.2, type=float)
    p.add_argument('--device', default='cpu')
    args = p.parse_args()
    rows = [line.split() for line in open('data/%s.txt' % args.dataset)]
    usernum, itemnum = max(int(r[0]) for r in rows), max(int(r[1]) for r in rows)
    model = NextItem(usernum, itemnum, args).to(args.device)
    model.train()
