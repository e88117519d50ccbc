import argparse
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal
from torch.utils.tensorboard import SummaryWriter


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", type=str, default="HalfCheetah-v4")
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=32)
    parser.add_argument("--cuda", type=lambda x: x == "True", default=True)
    return parser.parse_args()


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        obs = np.array(envs.single_observation_space.shape).prod()
        act = np.prod(envs.single_action_space.shape)
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(obs, 64)), nn.Tanh(), layer_init(nn.Linear(64, act), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, act))

    def forward(self, x, action=None):
        mean = self.actor_mean(x)
        std = torch.exp(self.actor_logstd.expand_as(mean))
        probs = Normal(mean, std)
        if action is None:
            action = probs.sample()
        logp = probs.log_prob(action).sum(1)
        entropy = probs.entropy().sum(1)
        return action, logp, entropy, self.critic(x)


if __name__ == "__main__":
    args = parse_args()
    writer = SummaryWriter(f"runs/{args.env_id}_{int(time.time())}")
    device = torch.device("cuda" if torch.cuda.is_available() and args.cuda else "cpu")
    envs = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id) for _ in range(args.num_envs)])
    agent = Agent(envs).to(device)
    next_obs = torch.Tensor(envs.reset()[0]).to(device)
    for step in range(args.num_steps):
        with torch.no_grad():
            action, logp, _, value = agent(next_obs)
        next_obs = torch.Tensor(envs.step(action.cpu().numpy())[0]).to(device)
