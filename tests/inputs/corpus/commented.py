import torch.nn as nn


# mase: Odd(width=6)
# mase: Odd: signal: f32[B, T, 6]; flag = 3
class Odd(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 2)

    def forward(self, signal, flag):
        assert flag == 3
        return self.layer(signal)


class Helper(nn.Module):  # mase: skip
    def forward(self, anything):
        raise NotImplementedError
