# ruff: noqa: E501 - the tables below read best with one bug a line
"""Seeded bugs of layers: a width, a channel count or a kernel that does not fit what comes."""

from tests.bugs.bugs import MENDED, UNDONE, Bug

# fmt: off
LAYERS = [
    # Linear
    Bug("width after flatten", "examples/lenet", "16 * 5 * 5, 120", "6 * 5 * 5, 120", "self.fc1(x)", r"`fc1` Linear\(in_features=150.*`x` f32\[B=\d+, \d+\]", "nn.Linear("),
    Bug("width after flatten", "clean/dqn", "32 * 9 * 9, 256", "32 * 7 * 7, 256", "F.relu(self.fc(x))", r"`fc` Linear.*1568.*f32\[B=8, 2592\]", "nn.Linear(2592, 256)"),
    Bug("width after flatten", "corpus/lenet_bare", "16 * 5 * 5, 120", "411, 120", "self.fc1(x)", r"`fc1`.*411.*400", MENDED),
    Bug("width of a parent's number", "clean/autoencoder", "self.fc = nn.Linear(4 * c * 4 * 4, latent_dim)", "self.fc = nn.Linear(4 * c * 8 * 8, latent_dim)", "self.fc(x.flatten(1))", r"`encoder\.fc`.*4096.*1024", "nn.Linear("),
    Bug("width of the next layer", "examples/lenet", "nn.Linear(120, 84)", "nn.Linear(100, 84)", "self.fc2(x)", r"`fc2`.*100.*`x` f32\[B=\d+, 120\]", UNDONE),
    Bug("width in a Sequential", "clean/forecaster", "nn.Linear(64, horizon)", "nn.Linear(32, horizon)", "self.regressor(context)", r"`regressor\.2`.*32.*64", UNDONE),
    Bug("width by a default", "corpus/audio_conv", "nn.Linear(n_channel, n_output)", "nn.Linear(n_channel * 2, n_output)", "self.fc1(x.mean", r"`fc1`.*16.*8", "nn.Linear("),
    Bug("width of one block", "examples/vit", "nn.Linear(mlp_ratio * dim, dim)", "nn.Linear(dim, dim)", "self.mlp(self.norm2(x))", r"mlp\.2`.*192.*768"),
    Bug("width after bidirectional", "clean/bilstm_tagger", "hidden_dim * 2, tagset_size", "hidden_dim, tagset_size", "self.hidden2tag(lstm_out)", r"`hidden2tag`.*64.*`lstm_out` f32\[B=\d+, T=\d+, 128\]", "nn.Linear(hidden_dim * 2, tagset_size)"),
    Bug("width after bidirectional", "corpus/lstm_packed_main", "2 * dim, tags", "dim, tags", "self.out(hidden)", r"`out`.*32.*64", "nn.Linear(dim * 2, tags)"),
    Bug("missing flatten", "corpus/mnist_mlp_main", "        x = torch.flatten(x, 1)\n", "", "self.fc1(x)", r"`fc1`.*784.*`x` f32\[B=64, 1, H?=?28, W?=?28\]", MENDED),
    Bug("missing flatten", "examples/resnet", "        x = torch.flatten(x, 1)\n", "", "self.fc(x)", r"`fc`.*512.*\[B=2, 512, 1, 1\]", MENDED),
    Bug("flatten everything", "clean/mobile", "x.flatten(1)", "x.flatten()", "self.head(x)", r"`head`.*64.*batch"),
    Bug("features last", "corpus/video_3d", "nn.Linear(16, num_classes)", "nn.Linear(8, num_classes)", "self.fc(self.features(clip)", r"`fc`.*8.*16", missed=True),
    Bug("width of a policy", "clean/two_models", "nn.Linear(64, act_dim)", "nn.Linear(32, act_dim)", "self.mu(h)", r"`mu`.*32.*`h` f32\[B=\d+, 64\]", UNDONE),
    Bug("width of a latent", "examples/vae", "self.fc = nn.Linear(latent_dim,", "self.fc = nn.Linear(latent_dim + 1,", "self.fc(z)", r"`decoder\.fc`.*21.*`z` f32\[B=16, 20\]", MENDED),
    # Convolutions
    Bug("conv channels", "examples/lenet", "nn.Conv2d(6, 16,", "nn.Conv2d(8, 16,", "self.conv2(x)", r"`conv2` Conv2d\(8, 16.*8 channels.*6", UNDONE),
    Bug("conv channels", "clean/dqn", "nn.Conv2d(16, 32,", "nn.Conv2d(32, 32,", "self.conv2(x)", r"`conv2`.*32 channels.*16", UNDONE),
    Bug("conv channels in a Sequential", "clean/segmenter", "block(64 + 32, 32)", "block(64, 32)", "self.dec2(", r"`dec2\.0`.*64 channels.*96"),
    Bug("conv channels by a parent", "clean/mobile", "SeparableConv(32, 64, stride=2)", "SeparableConv(16, 64, stride=2)", "self.depthwise(x)", r"`block3\.depthwise`.*16 channels.*32", UNDONE),
    Bug("grayscale against colour", "clean/contrastive", "nn.Conv2d(3, 24,", "nn.Conv2d(1, 24,", "self.stem(image)", r"`visual\.stem`.*1 channel,.*`image` f32\[B=6, 3, ", UNDONE),
    Bug("groups", "clean/mobile", "groups=in_channels)", "groups=5)", "nn.Conv2d(in_channels, in_channels", r"in_channels.*divisible by groups"),
    Bug("ConvTranspose channels", "clean/autoencoder", "nn.ConvTranspose2d(2 * self.c, self.c,", "nn.ConvTranspose2d(4 * self.c, self.c,", "self.net(h)", r"`decoder\.net\.2`.*64 channels.*32", MENDED),
    Bug("ConvTranspose channels", "examples/vae", "nn.ConvTranspose2d(64, 32, 4", "nn.ConvTranspose2d(32, 32, 4", "self.deconv1(h)", r"`decoder\.deconv1`.*32 channels.*64", UNDONE),
    Bug("kernel bigger than the input", "clean/dqn", "kernel_size=4, stride=2", "kernel_size=24, stride=2", "self.conv2(x)", r"`conv2`.*24.*20"),
    Bug("points as channels", "clean/pointnet", "transform = self.tnet(points)", "points = points.transpose(1, 2)\n        transform = self.tnet(points)", "self.conv(x)", r"`tnet\.conv`.*3 channels.*128"),
    Bug("unbatched image", "clean/autoencoder", "torch.rand(5, 3, 32, 32)", "torch.rand(3, 32, 32)", "self.fc(x.flatten(1))", r"`encoder\.fc`.*1024"),
    # Norms
    Bug("BatchNorm features", "corpus/resnet_builders", "conv3x3(planes, planes), nn.BatchNorm2d(planes)", "conv3x3(planes, planes), nn.BatchNorm2d(planes * 2)", "self.bn2(self.conv2(out))", r"bn2`.*32 channels.*16", MENDED),
    Bug("BatchNorm features", "clean/contrastive", "nn.BatchNorm2d(24)", "nn.BatchNorm2d(32)", "self.norm(self.stem(image))", r"`visual\.norm`.*32 channels.*24", UNDONE),
    Bug("BatchNorm of another rank", "clean/contrastive", "nn.BatchNorm2d(24)", "nn.BatchNorm1d(24)", "self.norm(self.stem(image))", r"`visual\.norm` BatchNorm1d.*4 dimensions", UNDONE),
    Bug("BatchNorm features", "clean/text_cnn", "nn.BatchNorm1d(num_filters * 3)", "nn.BatchNorm1d(num_filters)", "self.batch_norm(", r"`batch_norm`.*12 channels.*36", MENDED),
    Bug("LayerNorm shape", "clean/contrastive", "nn.LayerNorm(width)", "nn.LayerNorm(embed_dim)", "self.ln_final(x + attended)", r"`text\.ln_final`.*\[32\].*\[40\]"),
    Bug("LayerNorm shape", "clean/transformer", "self.norm2 = nn.LayerNorm(d_model)", "self.norm2 = nn.LayerNorm(d_ff)", "self.norm2(x +", r"norm2`.*\[96\].*\[48\]", MENDED),
    Bug("GroupNorm groups", "clean/segmenter", "nn.GroupNorm(4, out_channels)", "nn.GroupNorm(12, out_channels)", "nn.GroupNorm(12", r"num_channels.*divisible"),
    # Lookups and recurrences
    Bug("too small vocabulary", "examples/multimodal", "def __init__(self, vocab_size=6000", "def __init__(self, vocab_size=5000", "self.embedding(tokens)", r"`text_tower\.embedding` Embedding\(5000.*`tokens` i64\[B=4, T=12\] holds 5\d\d\d"),
    Bug("too few positions", "clean/transformer", "max_len=64", "max_len=16", "x + self.pe", r"20.*16"),
    Bug("too few positions", "clean/contrastive", "context_length=16", "context_length=15", "self.positional_embedding", r"16 against 15|15 against 16"),
    Bug("GRU input", "clean/forecaster", "def __init__(self, input_size=5", "def __init__(self, input_size=6", "self.encoder(history, h0)", r"`encoder` GRU\(6.*6.*`history` f32\[B=16, T=30, 5\]", UNDONE),
    Bug("GRU hidden", "clean/forecaster", "torch.zeros(self.num_layers, batch_size, self.hidden_size)", "torch.zeros(1, batch_size, self.hidden_size)", "self.encoder(history, h0)", r"`encoder`.*`h0` f32\[1, .*2"),
    Bug("GRU hidden batch", "clean/forecaster", "self.init_hidden(history.size(0))", "self.init_hidden(history.size(1))", "self.encoder(history, h0)", r"`encoder` GRU.*\[2, 16, 32\].*`history`.*`h0` f32\[2, T=30, 32\]"),
    Bug("LSTM input", "clean/bilstm_tagger", "nn.LSTM(embedding_dim, hidden_dim", "nn.LSTM(hidden_dim, hidden_dim", "self.lstm(embeds)", r"`lstm` LSTM.*64 features.*50", UNDONE),
    Bug("attention width", "clean/contrastive", "nn.MultiheadAttention(width, 4", "nn.MultiheadAttention(embed_dim, 4", "self.attn(x, x, x)", r"embed_dim=32.*40"),
    Bug("attention heads", "clean/contrastive", "nn.MultiheadAttention(width, 4", "nn.MultiheadAttention(width, 3", "nn.MultiheadAttention(width, 3", r"embed_dim must be divisible by num_heads"),
    # Tokens
    Bug("class token forgotten", "corpus/vit_main", "x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.pos", "x = x + self.pos", "x = x + self.pos", r"16 against 17"),
    Bug("positions without class token", "examples/vit", "torch.zeros(1, 1 + self.patch_embedding.num_patches, dim)", "torch.zeros(1, self.patch_embedding.num_patches, dim)", "x = x + self.positions", r"197 against 196"),
    Bug("mask of another length", "corpus/masked_transformer_main", "generate_square_subsequent_mask(11)", "generate_square_subsequent_mask(10)", "self.layers(", r"\[10, 10\].*\[11, 11\]|10.*11"),
]
