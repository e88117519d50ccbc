# ruff: noqa: E501 - the tables below read best with one bug a line
"""Seeded bugs of types, devices, modules and plain Python."""

from tests.bugs.bugs import MENDED, UNDONE, Bug

# fmt: off
PYTHON = [
    # Types
    Bug("integers into Linear", "corpus/gcn", "x = torch.randn(9, 12)", "x = torch.randint(0, 2, (9, 12))", "self.linear(x)", r"`conv1\.linear`.*f32.*`x` i64", "self.linear(x.float())"),
    Bug("float indices", "examples/gpt", "pos = torch.arange(T, device=idx.device)", "pos = torch.arange(T, device=idx.device).float()", "self.wpe(pos)", r"`wpe` Embedding.*`pos` f32", "self.wpe(pos.long())"),
    Bug("float indices", "clean/contrastive", "torch.randint(0, 400, (6, 16))", "torch.rand(6, 16)", "self.token_embedding(text)", r"`text\.token_embedding`.*`text` f32", "self.token_embedding(text.long())"),
    Bug("half against float", "clean/two_models", "h = torch.tanh(self.body(obs))", "h = torch.tanh(self.body(obs)).half()", "self.mu(h)", r"`mu`.*f32.*`h` f16", "self.mu(h.float())"),
    Bug("double against float", "clean/autoencoder", "torch.rand(5, 3, 32, 32)", "torch.rand(5, 3, 32, 32).double()", "self.conv1(x)", r"`encoder\.conv1`.*f32.*`x` f64", "self.conv1(x.float())"),
    Bug("not of a float mask", "clean/einsum_attention", "torch.tril(torch.ones(128, 128)).bool()", "torch.tril(torch.ones(128, 128))", "~self.causal[:t, :t]", r"bool|f32", MENDED),
    Bug("subtracting a mask", "clean/transformer", "masked_fill(mask == 0, -1e9)", "masked_fill(1 - mask, -1e9)", "masked_fill(1 - mask", r"bool", MENDED),
    Bug("mask that is no mask", "clean/transformer", "masked_fill(mask == 0, -1e9)", "masked_fill(mask.long(), -1e9)", "masked_fill(mask.long()", r"masked_fill.*bool.*i64|mask.*bool", "mask.long().bool()"),
    Bug("loss target type", "clean/segmenter", "torch.randint(0, 5, (3, 64, 48))", "torch.randint(0, 5, (3, 64, 48)).float()", "F.cross_entropy(logits, masks)", r"cross_entropy.*`masks` f32", "masks.long()"),
    Bug("loss target type", "corpus/dcgan_main", "criterion(netD(real), torch.ones(6))", "criterion(netD(real), torch.ones(6).long())", "criterion(netD(real)", r"f32|i64|Float|Long"),
    # Modules
    Bug("missing super().__init__()", "clean/two_models", "    def __init__(self, obs_dim=8, act_dim=3):\n        super().__init__()\n        self.body", "    def __init__(self, obs_dim=8, act_dim=3):\n        self.body", "self.body = nn.Linear", r"super\(\).__init__\(\)", UNDONE),
    Bug("missing super().__init__()", "clean/pointnet", "    def __init__(self, k=3):\n        super().__init__()\n", "    def __init__(self, k=3):\n", "self.conv = nn.Conv1d(k", r"super\(\).__init__\(\)", "super().__init__()"),
    Bug("misspelt attribute", "examples/lenet", "F.relu(self.fc2(x))", "F.relu(self.fc_2(x))", "self.fc_2(x)", r"Did you mean `fc2`", UNDONE),
    Bug("misspelt attribute", "clean/bilstm_tagger", "self.hidden2tag(lstm_out)", "self.hidden_to_tag(lstm_out)", "self.hidden_to_tag(lstm_out)", r"hidden2tag", UNDONE),
    Bug("misspelt class", "clean/mobile", "self.se = SqueezeExcite(", "self.se = SqueezeExite(", "SqueezeExite(", r"SqueezeExite.*Did you mean `SqueezeExcite`", UNDONE),
    Bug("misspelt layer", "clean/bilstm_tagger", "nn.Dropout(0.3)", "nn.DropOut(0.3)", "nn.DropOut", r"DropOut.*Did you mean `Dropout`", UNDONE),
    Bug("misspelt function", "clean/text_cnn", "F.adaptive_max_pool1d(maps, 1)", "F.adaptive_maxpool1d(maps, 1)", "F.adaptive_maxpool1d", r"Did you mean `adaptive_max_pool1d`", UNDONE),
    Bug("misspelt argument", "clean/bilstm_tagger", "bidirectional=True", "bidirection=True", "bidirection=True", r"bidirection.*Did you mean `bidirectional`", UNDONE),
    Bug("misspelt variable", "clean/two_models", "torch.cat([a, b], dim=-1)", "torch.cat([a, bb], dim=-1)", "torch.cat([a, bb]", r"bb.*Did you mean `b`", UNDONE),
    Bug("misspelt method", "clean/pointnet", "self.fc(x).view(-1", "self.fc(x).veiw(-1", "self.fc(x).veiw", r"Did you mean `view`", UNDONE),
    Bug("missing self", "examples/lenet", "x = F.relu(self.fc2(x))", "x = F.relu(fc2(x))", "F.relu(fc2(x))", r"fc2.*self\.fc2", UNDONE),
    Bug("ModuleList called", "clean/transformer", "        for layer in self.layers:\n            x = layer(x, mask)\n", "        x = self.layers(x, mask)\n", "self.layers(x, mask)", r"ModuleList.*loop over it|ModuleList"),
    Bug("tuple not unpacked", "clean/bilstm_tagger", "lstm_out, _ = self.lstm(embeds)", "lstm_out = self.lstm(embeds)", "self.hidden2tag(lstm_out)", r"tuple.*`lstm`|`lstm_out`.*tuple", UNDONE),
    Bug("tuple not unpacked", "clean/contrastive", "attended, _ = self.attn(x, x, x)", "attended = self.attn(x, x, x)", "x + attended", r"tuple", UNDONE),
    Bug("tuple not unpacked", "examples/vae", "mu, logvar = self.encoder(x)\n        z = self.reparameterize(mu, logvar)", "mu = self.encoder(x)\n        logvar = mu\n        z = self.reparameterize(mu, logvar)", "torch.exp(0.5 * logvar)", r"tuple"),
    Bug("max gives a pair", "clean/pointnet", "x = x.max(dim=2).values", "x = x.max(dim=2)", "self.fc1(x)", r"max|tuple|values", "x.max(dim=2).values"),
    Bug("max gives a pair", "clean/dqn", "target(next_states).max(dim=1)[0]", "target(next_states).max(dim=1)", "gamma * next_q", r"max|tuple|values", MENDED),
    Bug("module instead of its result", "clean/autoencoder", "x_hat = self.decoder(z)", "x_hat = self.decoder", "nn.functional.mse_loss(x_hat, images)", r"Decoder|size"),
    Bug("too few arguments", "clean/transformer", "x = layer(x, mask)", "x = layer(x)", "layer(x)", r"mask"),
    Bug("too many arguments", "clean/two_models", "self.mu(h)", "self.mu(h, obs)", "self.mu(h, obs)", r"takes 2|3 were given|Linear"),
    Bug("constructor arguments", "clean/mobile", "SeparableConv(16, 16)", "SeparableConv(16)", "SeparableConv(16)", r"out_channels"),
    Bug("None not handled", "clean/transformer", "        if mask is not None:\n            scores = scores.masked_fill(mask == 0, -1e9)\n", "        scores = scores.masked_fill(mask == 0, -1e9) + self.bias\n", "self.bias", r"bias"),
    Bug("forgotten return", "clean/autoencoder", "        return self.fc(x.flatten(1))", "        self.fc(x.flatten(1))", "h = self.fc(z)", r"None|NoneType"),
    Bug("Sequential in the wrong order", "corpus/pair_input", "nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))", "nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(20, 32))", "self.tower(", r"`tower\.2`.*20.*8"),
    # Devices
    Bug("table on another device", "clean/transformer", 'self.register_buffer("pe", pe.unsqueeze(0))', "self.pe = pe.unsqueeze(0)", "self.pe = pe.unsqueeze(0)", r"`self\.pe`.*register_buffer", UNDONE),
]
