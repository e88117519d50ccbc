import torch
import torch.nn as nn


class DecisionTransformer(nn.Module):
    """(return, state, action) triples as one causal sequence."""

    def __init__(self, state_dim, act_dim, hidden_size, max_length=20, max_ep_len=1000, n_layer=2, n_head=1, **kwargs):
        super().__init__()
        self.hidden_size = hidden_size
        layer = nn.TransformerEncoderLayer(hidden_size, n_head, 4 * hidden_size, batch_first=True, norm_first=True,
                                           dropout=kwargs.get("dropout", 0.1))
        self.core = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.embed_timestep = nn.Embedding(max_ep_len, hidden_size)
        self.embed_return = nn.Linear(1, hidden_size)
        self.embed_state = nn.Linear(state_dim, hidden_size)
        self.embed_action = nn.Linear(act_dim, hidden_size)
        self.embed_ln = nn.LayerNorm(hidden_size)
        self.predict_action = nn.Sequential(nn.Linear(hidden_size, act_dim), nn.Tanh())
        self.predict_return = nn.Linear(hidden_size, 1)

    def forward(self, states, actions, returns_to_go, timesteps, attention_mask=None):
        batch_size, seq_length = states.shape[0], states.shape[1]
        if attention_mask is None:
            attention_mask = torch.ones((batch_size, seq_length), dtype=torch.long)
        time = self.embed_timestep(timesteps)
        s = self.embed_state(states) + time
        a = self.embed_action(actions) + time
        r = self.embed_return(returns_to_go) + time
        stacked = torch.stack((r, s, a), dim=1).permute(0, 2, 1, 3).reshape(batch_size, 3 * seq_length, self.hidden_size)
        stacked = self.embed_ln(stacked)
        keep = torch.stack((attention_mask,) * 3, dim=1).permute(0, 2, 1).reshape(batch_size, 3 * seq_length)
        causal = torch.triu(torch.ones(3 * seq_length, 3 * seq_length, dtype=torch.bool), diagonal=1)
        x = self.core(stacked, mask=causal, src_key_padding_mask=keep == 0)
        x = x.reshape(batch_size, seq_length, 3, self.hidden_size).permute(0, 2, 1, 3)
        return self.predict_return(x[:, 2]), self.predict_action(x[:, 1])
