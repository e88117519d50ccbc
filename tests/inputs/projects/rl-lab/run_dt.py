import d4rl, gym
from decision_transformer import DecisionTransformer
env = gym.make("hopper-medium-v2")
model = DecisionTransformer(state_dim=env.observation_space.shape[0], act_dim=env.action_space.shape[0], hidden_size=128, n_layer=3, n_head=1)
