"""Hugging Face Llama from its config: next-token scores of a tiny model."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=2048,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    max_position_embeddings=512,
)


def next_token(model, prompt):
    output = model(input_ids=prompt, use_cache=False)
    last = output.logits[:, -1]
    return last.argmax(dim=-1)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(0, config.vocab_size, (2, 20))
    with torch.no_grad():
        token = next_token(model, prompt)
    print("next tokens:", token.tolist())
