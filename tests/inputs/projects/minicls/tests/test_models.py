import pytest
import torch

from minicls.models import create_model, list_models


@pytest.mark.parametrize("name", list_models())
def test_forward(name):
    model = create_model(name, num_classes=7).eval()
    out = model(torch.randn(2, 3, 64, 64))
    assert out.shape == (2, 7)
