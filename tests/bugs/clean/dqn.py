import torch
import torch.nn as nn
import torch.nn.functional as F


class DQN(nn.Module):
    def __init__(self, frames=4, num_actions=6):
        super().__init__()
        self.conv1 = nn.Conv2d(frames, 16, kernel_size=8, stride=4)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=4, stride=2)
        self.fc = nn.Linear(32 * 9 * 9, 256)
        self.value = nn.Linear(256, 1)
        self.advantage = nn.Linear(256, num_actions)

    def forward(self, state):
        x = F.relu(self.conv1(state))
        x = F.relu(self.conv2(x))
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc(x))
        value, advantage = self.value(x), self.advantage(x)
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def td_loss(policy, target, batch, gamma=0.99):
    states, actions, rewards, next_states, done = batch
    q = policy(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    next_q = target(next_states).max(dim=1)[0]
    expected = rewards + gamma * next_q * (1 - done)
    return F.smooth_l1_loss(q, expected)


if __name__ == "__main__":
    policy, target = DQN(), DQN()
    batch = (
        torch.rand(8, 4, 84, 84), torch.randint(0, 6, (8,)), torch.rand(8), torch.rand(8, 4, 84, 84), torch.zeros(8),
    )
    loss = td_loss(policy, target, batch)
    loss.backward()
