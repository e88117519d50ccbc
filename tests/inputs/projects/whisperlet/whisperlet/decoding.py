import torch


@torch.no_grad()
def decode(model, mel, max_len=224):
    tokens = torch.tensor([[50258]] * mel.shape[0])
    audio = model.encoder(mel)
    for _ in range(max_len):
        logits = model.decoder(tokens, audio)[:, -1]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    return tokens
