from transformers import PretrainedConfig


class TinyQAConfig(PretrainedConfig):
    model_type = "tinyqa"

    def __init__(self, vocab_size=3000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
                 image_feat_dim=256, num_answers=50, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.max_position_embeddings = max_position_embeddings
        self.image_feat_dim = image_feat_dim
        self.num_answers = num_answers
