import pandas as pd
from deepfm import DeepFM


def get_model(name, dataset):
    field_dims = dataset.field_dims
    if name == 'dfm':
        return DeepFM(field_dims, embed_dim=16, mlp_dims=(64, 32), dropout=0.2)
    raise ValueError('unknown model name: ' + name)
