# ruff: noqa: E501 - the tables below read best with one bug a line
"""Seeded bugs of shapes: views, joins, products, broadcasts, losses."""

from tests.bugs.bugs import MENDED, UNDONE, Bug

# fmt: off
SHAPES = [
    # Views and permutations
    Bug("head split", "clean/transformer", "x.view(batch, length, self.num_heads, self.d_k)", "x.view(batch, length, self.num_heads, self.num_heads)", "x.view(batch, length", r"view\(6, 20, 4, 4\).*5760.*1920"),
    Bug("head split", "examples/vit", "tokens, 3, self.heads, dim // self.heads)", "tokens, 3, self.heads, dim)", "self.qkv(x).reshape", r"reshape\(2, 197, 3, 3, 192\)"),
    Bug("wrong count", "clean/autoencoder", "h.view(-1, 4 * self.c, 4, 4)", "h.view(-1, 4 * self.c, 3, 3)", "h.view(-1", r"view\(-1, 64, 3, 3\).*`h` f32\[B=5, 1024\].*576"),
    Bug("wrong count", "clean/pointnet", "nn.Linear(32, k * k)", "nn.Linear(32, k)", ".view(-1, self.k, self.k)", r"view\(-1, 3, 3\).*"),
    Bug("view of a transposed", "clean/transformer", "context.transpose(1, 2).contiguous().view(", "context.transpose(1, 2).view(", "context.transpose(1, 2).view", r"reshape", "context.transpose(1, 2).reshape("),
    Bug("missing transpose", "clean/text_cnn", "self.embedding(text).transpose(1, 2)", "self.embedding(text)", "conv(embedded)", r"`convs\.0`.*40 channels.*`embedded`", "embedded.transpose(1, 2)"),
    Bug("missing transpose", "clean/transformer", "torch.matmul(q, k.transpose(-2, -1))", "torch.matmul(q, k)", "torch.matmul(q, k)", r"matmul.*`q` f32\[.*12.*`k`", "k.transpose(-2, -1)"),
    Bug("missing transpose", "clean/contrastive", "image_features @ text_features.t()", "image_features @ text_features", "image_features @ text_features", r"32.*`text_features`", "text_features.transpose(-2, -1)"),
    Bug("missing permute", "clean/segmenter", ".permute(0, 3, 1, 2)", "", "probabilities * one_hot", r"`probabilities`.*`one_hot`"),
    Bug("wrong transpose", "examples/gpt", "q @ k.transpose(-2, -1)", "q @ k.transpose(1, 2)", "q @ k.transpose(1, 2)", r"matmul"),
    Bug("permute of too few", "examples/vit", "qkv.permute(2, 0, 3, 1, 4)", "qkv.permute(2, 0, 3, 1)", "qkv.permute", r"permute.*5.*4|4.*5"),
    Bug("dimension out of range", "clean/bilstm_tagger", "torch.log_softmax(tag_space, dim=-1)", "torch.log_softmax(tag_space, dim=3)", "torch.log_softmax", r"dim.*3.*`tag_space`|[Dd]imension.*3"),
    Bug("squeezed batch", "corpus/dict_batch", "dim=-1)).squeeze(-1)", "dim=3)).squeeze(-1)", "torch.cat([user, item, dense]", r"dimension.*3|dim=3"),
    Bug("unpack of four", "clean/mobile", "b, c, _, _ = x.size()", "b, c, _ = x.size()", "b, c, _ = x.size()", r"4|too many values", MENDED),
    Bug("unpack of three", "clean/einsum_attention", "b, t, _ = x.shape", "b, t, _, _ = x.shape", "b, t, _, _ = x.shape", r"expected 4, got 3|3", MENDED),
    Bug("SE without spatial", "clean/mobile", "self.fc(y).view(b, c, 1, 1)", "self.fc(y)", "return x * y", r"`x` f32.*`y` f32"),
    Bug("chunk count", "clean/einsum_attention", "k, v = self.kv(x).chunk(2, dim=-1)", "k, v = self.kv(x).chunk(3, dim=-1)", "self.kv(x).chunk(3", r"too many values|3", MENDED),
    Bug("split size", "examples/gpt", ".split(C, dim=2)", ".split(2 * C, dim=2)", ".split(2 * C, dim=2)", r"not enough values|2"),
    # Joins
    Bug("concat dimension", "clean/segmenter", "torch.cat([up2, s2], dim=1)", "torch.cat([up2, s2], dim=0)", "torch.cat([up2, s2], dim=0)", r"cat along dimension 0.*`up2`.*`s2`.*64.*32", UNDONE),
    Bug("concat dimension", "corpus/diffusion_unet", "torch.cat([args.sin(), args.cos()], dim=-1)", "torch.cat([args.sin(), args.cos()], dim=0)", "self.mlp(torch.cat(", r"`time\.mlp\.0`|expects 16", missed=True),
    Bug("concat dimension", "clean/forecaster", "torch.cat((hidden, encoder_outputs), dim=2)", "torch.cat((hidden, encoder_outputs), dim=1)", "self.attn(torch.cat(", r"`attention\.attn`.*64.*32"),
    Bug("concat without upsampling", "clean/segmenter", 'up1 = F.interpolate(d2, scale_factor=2, mode="nearest")', "up1 = d2", "torch.cat([up1, s1], dim=1)", r"cat along dimension 1.*`up1`.*`s1`.*32.*64"),
    Bug("concat width", "corpus/dict_batch", "nn.Linear(13, dim)", "nn.Linear(13, 2 * dim)", "self.mlp(torch.cat(", r"`mlp\.0`.*48.*64"),
    Bug("concat ranks", "corpus/vit_main", "self.cls.expand(x.shape[0], -1, -1), x]", "self.cls[0].expand(x.shape[0], -1), x]", "torch.cat([", r"cat along dimension 1.*different numbers of dimensions"),
    Bug("concat of an unexpanded token", "examples/vit", "torch.cat([class_token, x], dim=1)", "torch.cat([self.class_token, x], dim=1)", "torch.cat([self.class_token, x]", r"`self\.class_token`.*dimension 0 is 1 .* 2"),
    Bug("stack of unequal", "examples/multimodal", "self.price = nn.Linear(1, dim)", "self.price = nn.Linear(1, dim // 2)", "torch.stack([image, text, price]", r"stack.*`image`.*128.*`price`.*64"),
    # Products
    Bug("matmul inner", "clean/contrastive", "torch.randn(width, embed_dim)", "torch.randn(embed_dim, width)", "@ self.text_projection", r"40.*`self\.text_projection` f32\[32, 40\]", "torch.randn("),
    Bug("bmm order", "clean/pointnet", "torch.bmm(transform, points)", "torch.bmm(points, transform)", "torch.bmm(points, transform)", r"bmm.*`points`.*128.*`transform`.*3", UNDONE),
    Bug("bmm rank", "clean/forecaster", "torch.bmm(weights.unsqueeze(1), outputs)", "torch.bmm(weights, outputs)", "torch.bmm(weights, outputs)", r"`weights` f32\[B=16, T=30\].*", "weights.unsqueeze(1)"),
    Bug("matmul order", "examples/vit", "(weights @ v)", "(v @ weights)", "(v @ weights)", r"`v`.*64.*`weights`.*197", "weights @ v"),
    Bug("einsum subscripts", "examples/lstm_classifier", '"bt,bth->bh"', '"bt,bht->bh"', "torch.einsum(", r"einsum.*t.*`states`"),
    Bug("einsum rank", "clean/einsum_attention", '"bqhd,bkhd->bhqk"', '"bqd,bkd->bqk"', 'torch.einsum("bqd', r"einsum.*3.*4"),
    # Broadcasts
    Bug("shape-changing residual", "clean/mobile", "stride == 1 and in_channels == out_channels", "stride == 2", "out = out + x", r"`out`.*32.*`x`.*16"),
    Bug("shape-changing residual", "examples/resnet", "if stride != 1 or in_channels != out_channels:", "if stride == 1 and in_channels != out_channels:", "out += identity", r"`out`.*`identity`"),
    Bug("wrong broadcast", "corpus/diffusion_unet", "self.time(t)[:, :, None, None]", "self.time(t)", "self.inp(x) + self.time(t)", r"`self\.inp\(x\)`.*`self\.time\(t\)`", missed=True),
    Bug("mask dimensions", "clean/transformer", "(tokens != 0).unsqueeze(1).unsqueeze(2)", "(tokens != 0)", "scores.masked_fill(", r"`mask == 0`|masked_fill.*20"),
    Bug("mask cut", "clean/einsum_attention", "self.causal[:t, :t]", "self.causal", "scores.masked_fill(", r"masked_fill|128"),
    Bug("mask cut", "examples/gpt", "self.mask[:, :, :T, :T] == 0", "self.mask == 0", "att.masked_fill(", r"masked_fill|256"),
    Bug("weights without a dimension", "corpus/moe", "picked * weights.unsqueeze(-1)", "picked * weights", "picked * weights", r"`picked`.*`weights`", missed=True),
    Bug("argument order", "clean/two_models", "self.log_std.exp().expand_as(mean)", "mean.expand_as(self.log_std.exp())", "mean.expand_as", r"expand", missed=True),
    Bug("swapped inputs", "corpus/gcn", "GCN()(x, edge_index)", "GCN()(edge_index, x)", "source, target = edge_index", r"9|too many values"),
    # Losses
    Bug("loss layout", "clean/transformer", "F.cross_entropy(logits.transpose(1, 2), labels)", "F.cross_entropy(logits, labels)", "F.cross_entropy(logits, labels)", r"cross_entropy.*`logits` f32\[B=6, T=20, 7\].*`labels`", "logits.transpose(1, 2)"),
    Bug("loss batch", "clean/contrastive", "labels = torch.arange(6)", "labels = torch.arange(5)", "loss = (F.cross_entropy(", r"cross_entropy.*`logits`.*6.*`labels`.*5"),
    Bug("loss without one shift", "corpus/gpt_config", "x = self.transformer.wte(idx) + self.transformer.wpe(pos)", "x = self.transformer.wte(idx) + self.transformer.wpe(idx.t())", "self.transformer.wpe(idx.t())", r"16|2", missed=True),
    Bug("loss of an image", "clean/segmenter", "F.cross_entropy(logits, masks)", "F.cross_entropy(logits.flatten(2), masks)", "F.cross_entropy(logits.flatten(2), masks)", r"cross_entropy.*3072.*`masks` i64\[.*64.*48"),
    Bug("loss target shape", "corpus/vae_function_main", "torch.zeros(5, 784)", "torch.zeros(5, 1, 28, 28)", "F.binary_cross_entropy(", r"`recon` f32\[.*784\].*28", MENDED),
    Bug("gather without a dimension", "clean/dqn", "actions.unsqueeze(1)", "actions", "policy(states).gather(", r"gather.*`actions` i64\[.*8\]", UNDONE),
]
