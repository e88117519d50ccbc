import numpy as np
import scipy.sparse as sp
import torch


def load_data(path="./data/cora/"):
    raw = np.genfromtxt(path + "cora.content", dtype=np.dtype(str))
    features = sp.csr_matrix(raw[:, 1:-1], dtype=np.float32)
    return None, torch.FloatTensor(np.array(features.todense())), None, None
