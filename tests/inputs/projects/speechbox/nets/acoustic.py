"""Text to mel frames: duration predictor + length regulator"""
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from nets.text import symbols


class ConvStack(nn.Module):
    def __init__(self, channels, n, kernel=5):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv1d(channels, channels, kernel, padding=kernel // 2), nn.BatchNorm1d(channels), nn.ReLU()) for _ in range(n))

    def forward(self, x):
        for l in self.layers:
            x = x + l(x)
        return x


class LengthRegulator(nn.Module):
    def forward(self, hidden, durations):
        expanded = [torch.repeat_interleave(h, d, dim=0) for h, d in zip(hidden, durations)]
        return pad_sequence(expanded, batch_first=True)


class AcousticModel(nn.Module):
    def __init__(self, hparams):
        super().__init__()
        d = hparams.symbols_embedding_dim
        self.embedding = nn.Embedding(len(symbols), d)
        self.encoder = ConvStack(d, hparams.encoder_n_convolutions)
        self.duration = nn.Linear(d, 1)
        self.regulate = LengthRegulator()
        self.decoder = nn.GRU(d, hparams.decoder_rnn_dim, batch_first=True, bidirectional=True)
        self.mel = nn.Linear(2 * hparams.decoder_rnn_dim, hparams.n_mel_channels)

    def forward(self, text, durations=None):
        x = self.embedding(text)
        h = self.encoder(x.transpose(1, 2)).transpose(1, 2)
        log_dur = self.duration(h).squeeze(-1)
        if durations is None:
            durations = torch.clamp(torch.round(log_dur.exp()), min=1, max=4).long()
        frames = self.regulate(h, durations)
        out, _ = self.decoder(frames)
        return self.mel(out), log_dur
