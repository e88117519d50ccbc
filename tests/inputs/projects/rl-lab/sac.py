import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

LOG_STD_MIN, LOG_STD_MAX = -20, 2


def mlp(sizes, act=nn.ReLU, out=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[j], sizes[j + 1]), (act if j < len(sizes) - 2 else out)()]
    return nn.Sequential(*layers)


class SquashedActor(nn.Module):
    def __init__(self, state_dim, action_dim, hidden_dim, max_action):
        super().__init__()
        self.trunk = mlp([state_dim, hidden_dim, hidden_dim], out=nn.ReLU)
        self.mu, self.log_std = nn.Linear(hidden_dim, action_dim), nn.Linear(hidden_dim, action_dim)
        self.max_action = max_action

    def forward(self, state, deterministic=False, with_logprob=True):
        h = self.trunk(state)
        mu = self.mu(h)
        std = self.log_std(h).clamp(LOG_STD_MIN, LOG_STD_MAX).exp()
        dist = Normal(mu, std)
        u = mu if deterministic else dist.rsample()
        logp = None
        if with_logprob:
            logp = dist.log_prob(u).sum(-1)
            logp -= (2 * (0.6931 - u - F.softplus(-2 * u))).sum(dim=1)
        return self.max_action * torch.tanh(u), logp


class TwinQ(nn.Module):
    def __init__(self, state_dim, action_dim, hidden_dim):
        super().__init__()
        self.q1, self.q2 = (mlp([state_dim + action_dim, hidden_dim, hidden_dim, 1]) for _ in range(2))

    def forward(self, state, action):
        sa = torch.cat([state, action], -1)
        return self.q1(sa).squeeze(-1), self.q2(sa).squeeze(-1)


class SAC:
    def __init__(self, state_dim, action_dim, max_action, device="cuda"):
        self.actor = SquashedActor(state_dim, action_dim, 256, max_action).to(device)
        self.critic = TwinQ(state_dim, action_dim, 256).to(device)

    def select_action(self, state):
        with torch.no_grad():
            return self.actor(torch.FloatTensor(state[None]).cuda(), deterministic=True)[0].cpu().numpy()
