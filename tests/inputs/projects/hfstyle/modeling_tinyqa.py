from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from configuration_tinyqa import TinyQAConfig


@dataclass
class TinyQAOutput(ModelOutput):
    loss: Optional[torch.FloatTensor] = None
    logits: torch.FloatTensor = None
    hidden: torch.FloatTensor = None


class TinyQAPreTrainedModel(PreTrainedModel):
    config_class = TinyQAConfig
    base_model_prefix = "tinyqa"

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=0.02)


class TinyQAEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.regions = nn.Linear(config.image_feat_dim, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)

    def forward(self, input_ids, visual_feats):
        pos = torch.arange(input_ids.shape[1], device=input_ids.device)
        text = self.words(input_ids) + self.positions(pos)
        image = self.regions(visual_feats)
        return self.norm(torch.cat([text, image], dim=1))


class TinyQAForVisualQuestionAnswering(TinyQAPreTrainedModel):
    def __init__(self, config: TinyQAConfig):
        super().__init__(config)
        self.embeddings = TinyQAEmbeddings(config)
        layer = nn.TransformerEncoderLayer(config.hidden_size, config.num_attention_heads, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, config.num_hidden_layers)
        self.answer = nn.Linear(config.hidden_size, config.num_answers)
        self.post_init()

    def forward(self, input_ids: torch.LongTensor, visual_feats: torch.FloatTensor,
                attention_mask: Optional[torch.Tensor] = None, labels: Optional[torch.LongTensor] = None):
        hidden = self.embeddings(input_ids, visual_feats)
        padding = None
        if attention_mask is not None:
            ones = attention_mask.new_ones(visual_feats.shape[:2])
            padding = torch.cat([attention_mask, ones], dim=1) == 0
        hidden = self.encoder(hidden, src_key_padding_mask=padding)
        logits = self.answer(hidden[:, 0])
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return TinyQAOutput(loss=loss, logits=logits, hidden=hidden)
