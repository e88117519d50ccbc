from subprocess import run

import numpy as np
import torch
import torchaudio

SAMPLE_RATE = 16000
N_FFT = 400


def load_audio(file, sr=SAMPLE_RATE):
    out = run(["ffmpeg", "-i", file, "-f", "s16le", "-ar", str(sr), "-"], capture_output=True, check=True).stdout
    return np.frombuffer(out, np.int16).flatten().astype(np.float32) / 32768.0


def log_mel_spectrogram(audio, n_mels=80):
    return torchaudio.transforms.MelSpectrogram(SAMPLE_RATE, N_FFT, n_mels=n_mels)(audio).log10()
