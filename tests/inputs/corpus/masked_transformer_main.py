import torch
import torch.nn as nn


class Decoder(nn.Module):
    def __init__(self, ntoken=90, d_model=32, nhead=2):
        super().__init__()
        self.embed = nn.Embedding(ntoken, d_model)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(d_model, nhead, 64), 2)
        self.out = nn.Linear(d_model, ntoken)

    def forward(self, src, src_mask):
        return self.out(self.layers(self.embed(src), src_mask))


if __name__ == "__main__":
    model = Decoder()
    model.eval()
    src = torch.randint(0, 90, (11, 4))
    mask = nn.Transformer.generate_square_subsequent_mask(11)
    print(model(src, mask).shape)
