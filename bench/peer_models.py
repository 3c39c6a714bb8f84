"""The models that `make bench` trains, as PyTorch trains them fastest: of peer_torch.py.

SHAPES are the sizes, read by steps.py too, which gives the same ones to pplan.
"""

# Names are those of `dim` and `param` in the .pmodel.
SHAPES = {
    "gpt2": dict(layers=12, hidden=768, heads=12, kv_heads=12, ffn=3072, vocab=50257),
    "llama": dict(layers=8, hidden=512, heads=8, kv_heads=4, ffn=1408, vocab=12800),
}
CONTEXT = 1024                      # positions that GPT-2 has learned
LLAMA = dict(eps=1e-5, base=500_000.0)


def shape_of(model, other):
    """The sizes of a model, but for those in 'NAME=VALUE NAME=VALUE'. What a GPT-2 is not given follows from what it is."""
    given = {name: int(value) for name, value in (word.split("=") for word in other.split())}
    follows = dict(kv_heads=given["heads"], ffn=4 * given["hidden"]) if given and model == "gpt2" else {}
    return {**SHAPES[model], **follows, **given}


def rows_of_table(args):
    """A multiple of 128 where the head is padded."""
    return -(-args.vocab // 128) * 128 if args.head == "padded" else args.vocab


def linear_weights(args):
    """Numbers of all matrices that a token is multiplied with, the tied head included."""
    head_dim = args.hidden // args.heads
    attention = args.hidden * head_dim * (2 * args.heads + 2 * args.kv_heads)
    mlp = {"gpt2": 2, "llama": 3}[args.model] * args.hidden * args.ffn
    return args.layers * (attention + mlp) + args.vocab * args.hidden


def build(args):
    """The module: forward(ids, labels) is the loss, `blocks` the layers, `end` what follows them."""
    import torch
    from torch import nn
    from torch.nn import functional as F
    head_dim, groups = args.hidden // args.heads, args.heads // args.kv_heads

    def attend(q, k, v):
        """Causal, of [batch, seq, heads, head_dim] each; the result is [batch, seq, hidden]."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        batch, _, seq, _ = q.shape
        if args.kv_heads != args.heads and args.gqa == "repeat":
            k, v = (t.repeat_interleave(groups, dim=1) for t in (k, v))
        if args.attention == "sdpa":
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
        else:
            later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            a = (q @ k.transpose(2, 3) / head_dim ** 0.5).masked_fill(later, float("-inf")).softmax(3) @ v
        return a.transpose(1, 2).reshape(batch, seq, args.hidden)

    class End(nn.Module):
        """Last norm, head and loss. The head is tied to the table of tokens."""

        def __init__(self, norm):
            super().__init__()
            self.norm = norm

        def forward(self, x, table, labels):
            x = self.norm(x).view(-1, args.hidden)
            if args.head == "chunked":
                return F.linear_cross_entropy(x, table, labels.reshape(-1))
            return F.cross_entropy(F.linear(x, table), labels.reshape(-1))

    class GptBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(args.hidden), nn.LayerNorm(args.hidden)
            self.qkv, self.out = nn.Linear(args.hidden, 3 * args.hidden), nn.Linear(args.hidden, args.hidden)
            self.up, self.down = nn.Linear(args.hidden, args.ffn), nn.Linear(args.ffn, args.hidden)

        def forward(self, x):
            parts = self.qkv(self.ln1(x)).split(args.hidden, dim=2)
            x = x + self.out(attend(*(t.view(*t.shape[:2], args.heads, head_dim) for t in parts)))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(rows_of_table(args), args.hidden), nn.Embedding(CONTEXT, args.hidden)
            self.blocks = nn.ModuleList(GptBlock() for _ in range(args.layers))
            self.end = End(nn.LayerNorm(args.hidden))

        def forward(self, ids, labels):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return self.end(x, self.wte.weight, labels)

    class LlamaBlock(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = (nn.RMSNorm(args.hidden, eps=LLAMA["eps"]) for _ in range(2))
            self.qkv = nn.Linear(args.hidden, (args.heads + 2 * args.kv_heads) * head_dim, bias=False)
            self.out = nn.Linear(args.hidden, args.hidden, bias=False)
            self.gate_up = nn.Linear(args.hidden, 2 * args.ffn, bias=False)
            self.down = nn.Linear(args.ffn, args.hidden, bias=False)

        def forward(self, x, cos, sin):
            def rope(t):
                a, b = t.chunk(2, dim=3)
                return t * cos.to(t.dtype) + torch.cat((-b, a), dim=3) * sin.to(t.dtype)

            qkv = self.qkv(self.ln1(x))
            qkv = qkv.view(*qkv.shape[:2], args.heads + 2 * args.kv_heads, head_dim)
            q, k, v = qkv.split((args.heads, args.kv_heads, args.kv_heads), dim=2)
            x = x + self.out(attend(rope(q), rope(k), v))
            gate, up = self.gate_up(self.ln2(x)).chunk(2, dim=2)
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = nn.Embedding(rows_of_table(args), args.hidden)
            self.blocks = nn.ModuleList(LlamaBlock() for _ in range(args.layers))
            self.end = End(nn.RMSNorm(args.hidden, eps=LLAMA["eps"]))
            angle = torch.outer(torch.arange(args.seq), LLAMA["base"] ** (-torch.arange(0, head_dim, 2) / head_dim))
            angle = torch.cat((angle, angle), dim=1)[:, None, :]        # [seq, 1, head_dim]
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, ids, labels):
            x = self.tok(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.end(x, self.tok.weight, labels)

    model = {"gpt2": Gpt2, "llama": Llama}[args.model]()
    for p in model.parameters():
        if p.dim() >= 2:
            nn.init.normal_(p, std=0.02)
    return model
