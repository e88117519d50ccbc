"""Product matching from a picture, its caption and its price: the model takes one dict and returns one dict."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        channels = (3, 32, 64, 128)
        self.stages = nn.ModuleList()
        for c_in, c_out in zip(channels, channels[1:]):
            self.stages.append(nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride=2, padding=1), nn.GELU()))
        self.proj = nn.Linear(channels[-1], dim)

    def forward(self, pixels):
        features = pixels
        for stage in self.stages:
            features = stage(features)
        pooled = features.mean(dim=(2, 3))
        return self.proj(pooled)


class TextTower(nn.Module):
    def __init__(self, vocab_size, dim):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, tokens, mask):
        embedded = self.embedding(tokens) * mask.unsqueeze(-1)
        outputs, last = self.gru(embedded)
        return last.squeeze(0)


class ProductMatcher(nn.Module):
    def __init__(self, vocab_size=6000, dim=128, num_categories=30):
        super().__init__()
        self.image_tower = ImageTower(dim)
        self.text_tower = TextTower(vocab_size, dim)
        self.price = nn.Linear(1, dim)
        self.fusion = nn.MultiheadAttention(dim, num_heads=4, batch_first=True)
        self.classifier = nn.Linear(dim, num_categories)

    def forward(self, batch):
        image = self.image_tower(batch["image"])
        text = self.text_tower(batch["caption"], batch["caption_mask"])
        price = self.price(torch.log1p(batch["price"]).unsqueeze(-1))

        tokens = torch.stack([image, text, price], dim=1)
        fused, weights = self.fusion(tokens, tokens, tokens)
        logits = self.classifier(fused.mean(dim=1))
        similarity = F.cosine_similarity(image, text, dim=-1)
        return {"logits": logits, "similarity": similarity, "attention": weights}


if __name__ == "__main__":
    torch.manual_seed(0)
    batch = {
        "image": torch.randn(4, 3, 64, 64),
        "caption": torch.randint(0, 6000, (4, 12)),
        "caption_mask": torch.ones(4, 12),
        "price": torch.rand(4) * 100,
    }
    model = ProductMatcher()
    result = model(batch)
    print("similarity of picture and caption:", [round(s, 3) for s in result["similarity"].tolist()])
