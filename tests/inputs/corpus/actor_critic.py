import torch
import torch.nn as nn


class ActorCritic(nn.Module):
    def __init__(self, state_dim, action_dim, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state_dim, hidden), nn.Tanh())
        self.actor, self.critic = nn.Linear(hidden, action_dim), nn.Linear(hidden, 1)

    def forward(self, state):
        h = self.body(state)
        dist = torch.distributions.Categorical(logits=self.actor(h))
        return dist.logits, self.critic(h)
