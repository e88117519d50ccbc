import torch
import torch.nn as nn


class Policy(nn.Module):
    def __init__(self, obs_dim=8, act_dim=3):
        super().__init__()
        self.body = nn.Linear(obs_dim, 64)
        self.mu = nn.Linear(64, act_dim)
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def forward(self, obs):
        h = torch.tanh(self.body(obs))
        mean = self.mu(h)
        return mean, self.log_std.exp().expand_as(mean)


class Critic(nn.Module):
    def __init__(self, obs_dim=8, act_dim=3):
        super().__init__()
        self.obs = nn.Linear(obs_dim, 32)
        self.act = nn.Linear(act_dim, 32)
        self.out = nn.Linear(64, 1)

    def forward(self, obs, act):
        a = self.obs(obs)
        b = self.act(act)
        joint = torch.cat([a, b], dim=-1)
        return self.out(torch.relu(joint)).squeeze(-1)
