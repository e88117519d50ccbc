import gym
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", "state action reward next_state done")


class DuelingDQN(nn.Module):
    def __init__(self, obs_shape, n_actions):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(obs_shape[0], 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU())
        n = self._flat(obs_shape)
        self.advantage = nn.Sequential(nn.Linear(n, 256), nn.ReLU(), nn.Linear(256, n_actions))
        self.value = nn.Sequential(nn.Linear(n, 256), nn.ReLU(), nn.Linear(256, 1))

    def _flat(self, shape):
        return int(np.prod(self.features(torch.zeros(1, *shape)).size()))

    def forward(self, obs):
        x = obs.float() / 255.
        x = self.features(x).flatten(1)
        adv, val = self.advantage(x), self.value(x)
        return val + adv - adv.mean(dim=1, keepdim=True)


class Replay:
    def __init__(self, size):
        self.buf = deque(maxlen=size)

    def sample(self, n):
        return [torch.as_tensor(np.stack(c)) for c in zip(*random.sample(self.buf, n))]


def main():
    env = gym.make("BreakoutNoFrameskip-v4")
    net = DuelingDQN((4, 84, 84), env.action_space.n).to("cuda")
    target = DuelingDQN((4, 84, 84), env.action_space.n).to("cuda")
    target.load_state_dict(net.state_dict())
    opt = optim.Adam(net.parameters(), lr=1e-4)
    replay = Replay(100000)
    state = env.reset()
    while True:
        q = net(torch.tensor(np.array([state])).cuda())
        state, reward, done, _ = env.step(q.argmax().item())
        if done:
            state = env.reset()


if __name__ == "__main__":
    main()
