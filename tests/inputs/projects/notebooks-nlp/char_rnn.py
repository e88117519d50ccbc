import torch, string
import torch.nn as nn

letters = string.ascii_letters + " .,;'-"


class NameClassifier(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(NameClassifier, self).__init__()
        self.hidden_size = hidden_size
        self.update = nn.Linear(input_size + hidden_size, hidden_size)
        self.readout = nn.Linear(input_size + hidden_size, output_size)

    def forward(self, input, hidden):
        both = torch.cat((input, hidden), 1)
        hidden = torch.tanh(self.update(both))
        output = torch.log_softmax(self.readout(both), dim=1)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, self.hidden_size)


def line_to_tensor(line):
    t = torch.zeros(len(line), 1, len(letters))
    for i, c in enumerate(line):
        t[i][0][letters.find(c)] = 1
    return t


n_hidden = 128
rnn = NameClassifier(len(letters), n_hidden, 18)
