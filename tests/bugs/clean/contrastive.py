import torch
import torch.nn as nn
import torch.nn.functional as F


class ImageEncoder(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 7, stride=4, padding=3)
        self.norm = nn.BatchNorm2d(24)
        self.proj = nn.Linear(24, embed_dim)

    def forward(self, image):
        x = F.relu(self.norm(self.stem(image)))
        x = x.mean(dim=(2, 3))
        return self.proj(x)


class TextEncoder(nn.Module):
    def __init__(self, vocab_size, width, embed_dim, context_length=16):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.randn(context_length, width))
        self.attn = nn.MultiheadAttention(width, 4, batch_first=True)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.randn(width, embed_dim))

    def forward(self, text):
        x = self.token_embedding(text) + self.positional_embedding
        attended, _ = self.attn(x, x, x)
        x = self.ln_final(x + attended)
        return x[:, -1] @ self.text_projection


class CLIP(nn.Module):
    def __init__(self, embed_dim=32, vocab_size=400, width=40):
        super().__init__()
        self.visual = ImageEncoder(embed_dim)
        self.text = TextEncoder(vocab_size, width, embed_dim)
        self.logit_scale = nn.Parameter(torch.ones([]))

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text(text), dim=-1)
        return self.logit_scale * image_features @ text_features.t()


if __name__ == "__main__":
    model = CLIP()
    logits = model(torch.rand(6, 3, 64, 64), torch.randint(0, 400, (6, 16)))
    labels = torch.arange(6)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
