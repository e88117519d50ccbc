import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.attn = nn.Linear(hidden_size * 2, hidden_size)
        self.v = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, hidden, encoder_outputs):
        steps = encoder_outputs.size(1)
        hidden = hidden.unsqueeze(1).repeat(1, steps, 1)
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
        return torch.softmax(self.v(energy).squeeze(2), dim=1)


class Forecaster(nn.Module):
    def __init__(self, input_size=5, hidden_size=32, num_layers=2, horizon=12):
        super().__init__()
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.encoder = nn.GRU(input_size, hidden_size, num_layers, batch_first=True)
        self.attention = Attention(hidden_size)
        self.regressor = nn.Sequential(
            nn.Linear(hidden_size, 64),
            nn.ReLU(),
            nn.Linear(64, horizon),
        )

    def init_hidden(self, batch_size):
        return torch.zeros(self.num_layers, batch_size, self.hidden_size)

    def forward(self, history):
        h0 = self.init_hidden(history.size(0))
        outputs, hn = self.encoder(history, h0)
        weights = self.attention(hn[-1], outputs)
        context = torch.bmm(weights.unsqueeze(1), outputs).squeeze(1)
        return self.regressor(context)


if __name__ == "__main__":
    model = Forecaster()
    history, future = torch.randn(16, 30, 5), torch.randn(16, 12)
    loss = nn.MSELoss()(model(history), future)
    loss.backward()
