from .audio import log_mel_spectrogram
from .model import ModelDimensions, Whisper


def load_model(name, device="cuda"):
    import torch
    checkpoint = torch.load(name, map_location=device)
    dims = ModelDimensions(**checkpoint["dims"])
    model = Whisper(dims)
    model.load_state_dict(checkpoint["model_state_dict"])
    return model.to(device)
