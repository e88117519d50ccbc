import json
import yaml
import librosa
import torch
from env import AttrDict
from nets.vocoder import Vocoder
from nets.acoustic import AcousticModel

with open('configs/vocoder.json') as f:
    h = AttrDict(json.loads(f.read()))
with open('hparams.yaml') as f:
    hparams = AttrDict(yaml.safe_load(f))
device = torch.device('cuda')
acoustic = AcousticModel(hparams).to(device)
vocoder = Vocoder(h).to(device)
