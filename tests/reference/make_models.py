#!/usr/bin/env python3
"""Float64 reference numbers of the bundled models at a tiny size, made with PyTorch, written as text.

    python3 make_models.py [NAME...]     write NAME.txt here (default: all)

The models are the files of models/ themselves, made tiny by the `defines` of a file's
`model` record (-D), and packed.pmodel of this folder. Their optimizers are those of the
texts, but for the `set` values (--set): a rate that moves the weights in ten steps.

PyTorch gives values and gradients; initial weights, dropout, rates and optimizers are
the product's rules (rules.py).
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

import ops
import records
import rules

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, STEPS = 1, 10
INPUT_SEED = 11                 # of the samples


def draw(name, shape, below):
    """Integers in 0..below-1, a function of the name alone."""
    return np.array(rules.words(int(np.prod(shape)), name, INPUT_SEED), dtype=np.int64).reshape(shape) % below


def pixels(name, shape):
    """Multiples of 1/32 in [-1, 1]: exact, and short as text."""
    return draw(name, shape, 65) / 32.0 - 1.0


class Model:
    """A model's weights in `weights` (path -> tensor) and the step it is in (from 0), for random numbers."""
    source = "models/%s.pmodel"
    set, inputs = {}, {}

    def linear(self, path, x, inner=1):
        """x[.., k..] w[k.., n..] + b[n..]: over the last `inner` axes of x."""
        y = torch.tensordot(x, self.weights[path + ".w"], dims=inner)
        return y + self.weights[path + ".b"] if path + ".b" in self.weights else y

    def layernorm(self, path, x, eps):
        return F.layer_norm(x, x.shape[-1:], self.weights[path + ".w"], self.weights[path + ".b"], eps)

    def rmsnorm(self, path, x):
        return F.rms_norm(x, x.shape[-1:], self.weights[path + ".w"], 1e-6)

    def kept(self, path, shape, p):
        """What dropout multiplies by; 1.0 without it."""
        return torch.tensor(rules.dropout(shape, path, SEED, self.step, p)) if p > 0 else 1.0

    def dropout(self, path, x, p):
        return x * self.kept(path, x.shape, p)

    def attend(self, path, x, memory, drop=0.0, **how):
        """Queries of x, keys and values of memory; the product with `out`."""
        q, k, v = self.linear(path + ".q", x), self.linear(path + ".k", memory), self.linear(path + ".v", memory)
        shape = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        return self.linear(path + ".out", ops.attention(q, k, v, keep=self.kept(path + ".a", shape, drop), **how), 2)

    def rotary(self, path, x, at=None, **how):
        """Causal attention whose queries and keys are rotated."""
        q, k, v = (self.linear(path + "." + p, x) for p in "qkv")
        return self.linear(path + ".out", ops.attention(ops.rope(q, at=at), ops.rope(k, at=at), v, causal=True, **how), 2)

    def swiglu(self, path, x):
        return self.linear(path + ".down", F.silu(self.linear(path + ".gate", x)) * self.linear(path + ".up", x))


def dense(path, left, right, init, bias=True):
    """Specs of a linear: (path, shape, initialiser, its arguments)."""
    return [(path + ".w", left + right) + init] + [(path + ".b", right, "zeros")] * bias


def norm(path, d, bias=True):
    return [(path + ".w", (d,), "ones")] + [(path + ".b", (d,), "zeros")] * bias


class Bert(Model):
    """Post-norm encoder with a mask on padding, dropout, a tied head, two losses."""
    name = "bert_base"
    defines = dict(batch=4, seq=7, vocab=23, position=9, hidden=10, heads=2, ffn=14, layers=2, drop=0.1)
    optimizer = rules.AdamW(lr=0.01, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.01, clip=1.0)
    rate = rules.Rate(lr=0.01, warmup=3, steps=12, decay="linear")
    set = dict(lr=0.01, warmup=3, steps=12)

    def samples(self, n):
        seq, vocab = self.defines["seq"], self.defines["vocab"]
        length = 4 + draw("length", (n, 1), 4)                  # of 7; the rest is padding
        real = np.arange(seq) < length
        masked = real & (draw("masked", (n, seq), 5) < 2) | (np.arange(seq) == 1)
        return dict(ids=("i32", draw("ids", (n, seq), vocab)), segments=("i32", (np.arange(seq) >= length // 2) & real),
                    mask=("u8", real), labels=("i32", np.where(masked, draw("labels", (n, seq), vocab), -100)),
                    is_next=("i32", draw("is_next", (n,), 2)))

    def specs(self):
        d = self.defines
        E, H, N, cut = d["hidden"], d["heads"], d["ffn"], ("trunc_normal", 0.02)
        out = [("tok", (d["vocab"], E)) + cut, ("pos", (d["position"], E)) + cut, ("typ", (2, E)) + cut] + norm("ln", E)
        for i in range(d["layers"]):
            p = "layer[%d]." % i
            for r in "qkv":
                out += dense(p + "attn." + r, (E,), (H, E // H), cut)
            out += dense(p + "attn.out", (H, E // H), (E,), cut) + norm(p + "ln1", E)
            out += dense(p + "mlp.up", (E,), (N,), cut) + dense(p + "mlp.down", (N,), (E,), cut) + norm(p + "ln2", E)
        out += dense("mlm", (E,), (E,), cut) + norm("mlm_ln", E) + [("mlm_bias", (d["vocab"],), "zeros")]
        return out + dense("pooler", (E,), (E,), cut) + dense("nsp", (E,), (2,), cut)

    def loss(self, w, ids, segments, mask, labels, is_next):
        drop, eps = self.defines["drop"], 1e-12
        x = w["tok"][ids] + w["pos"][torch.arange(ids.shape[1])] + w["typ"][segments]
        x = self.dropout("x", self.layernorm("ln", x, eps), drop)
        for i in range(self.defines["layers"]):
            p = "layer[%d]." % i
            a = self.attend(p + "attn", x, x, drop, mask=mask.bool())
            x = self.layernorm(p + "ln1", x + self.dropout(p + "attn.dropout", a, drop), eps)
            m = self.linear(p + "mlp.down", F.gelu(self.linear(p + "mlp.up", x)))
            x = self.layernorm(p + "ln2", x + self.dropout(p + "mlp.dropout", m, drop), eps)
        t = self.layernorm("mlm_ln", F.gelu(self.linear("mlm", x)), eps)
        follow = self.linear("nsp", self.linear("pooler", x[:, 0]).tanh())
        return ops.cross_entropy(t @ w["tok"].T + w["mlm_bias"], labels, ignore=-100) + ops.cross_entropy(follow, is_next)


class T5(Model):
    """Encoder and decoder of one table; biases by position that all layers of a stack share; cross-attention."""
    name = "t5_small"
    defines = dict(batch=4, vocab=19, source=14, target=5, hidden=8, heads=2, head_dim=3, ffn=10, layers=2)
    optimizer = rules.AdamW(lr=0.02, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, clip=1.0)
    rate = rules.Rate(lr=0.02, warmup=3, steps=8, decay="cosine", min_lr=1e-4)
    set = dict(lr=0.02, warmup=3, steps=8)

    def samples(self, n):
        d = self.defines
        return dict(src=("i32", draw("src", (n, d["source"]), d["vocab"])), tgt=("i32", draw("tgt", (n, d["target"]), d["vocab"])),
                    labels=("i32", draw("labels", (n, d["target"]), d["vocab"])))

    def attention_specs(self, path):
        d = self.defines
        E, H, e = d["hidden"], d["heads"], d["head_dim"]
        spread = dict(q=(E * e) ** -0.5, k=E ** -0.5, v=E ** -0.5)
        out = [(path + "." + r + ".w", (E, H, e), "normal", s) for r, s in spread.items()]
        return out + [(path + ".out.w", (H, e, E), "normal", (H * e) ** -0.5)]

    def specs(self):
        d = self.defines
        E, H, N = d["hidden"], d["heads"], d["ffn"]
        feed = lambda p: [(p + ".wi.w", (E, N), "normal", E ** -0.5), (p + ".wo.w", (N, E), "normal", N ** -0.5)]
        scale = lambda p: norm(p, E, bias=False)
        out = [("tok", (d["vocab"], E), "normal", 1.0), ("enc_bias.w", (32, H), "normal", 0.02)]
        for i in range(d["layers"]):
            p = "enc[%d]." % i
            out += scale(p + "norm1") + self.attention_specs(p + "attn") + scale(p + "norm2") + feed(p + "mlp")
        out += scale("enc_norm") + [("dec_bias.w", (32, H), "normal", 0.02)]
        for i in range(d["layers"]):
            p = "dec[%d]." % i
            out += scale(p + "norm1") + self.attention_specs(p + "self") + scale(p + "norm2") + self.attention_specs(p + "cross")
            out += scale(p + "norm3") + feed(p + "mlp")
        return out + scale("dec_norm")

    def feed(self, path, x):
        return self.linear(path + ".wo", self.linear(path + ".wi", x).relu())

    def loss(self, w, src, tgt, labels):
        d, layers = self.defines, range(self.defines["layers"])
        bias = ops.relative_bias(w["enc_bias.w"], d["source"], d["source"], 32, 128, True)
        past = ops.relative_bias(w["dec_bias.w"], d["target"], d["target"], 32, 128, False)
        x = w["tok"][src]
        for p in ("enc[%d]." % i for i in layers):
            n = self.rmsnorm(p + "norm1", x)
            x = x + self.attend(p + "attn", n, n, bias=bias, scale=1.0)
            x = x + self.feed(p + "mlp", self.rmsnorm(p + "norm2", x))
        memory, y = self.rmsnorm("enc_norm", x), w["tok"][tgt]
        for p in ("dec[%d]." % i for i in layers):
            n = self.rmsnorm(p + "norm1", y)
            y = y + self.attend(p + "self", n, n, bias=past, causal=True, scale=1.0)
            y = y + self.attend(p + "cross", self.rmsnorm(p + "norm2", y), memory, scale=1.0)
            y = y + self.feed(p + "mlp", self.rmsnorm(p + "norm3", y))
        return ops.cross_entropy(self.rmsnorm("dec_norm", y) / d["hidden"] ** 0.5 @ w["tok"].T, labels)


class Vit(Model):
    """A convolution makes tokens, a learned one goes before them; pre-norm encoder."""
    name = "vit_b16"
    defines = {"batch": 4, "channel": 3, "height": 4, "width": 6, "patch": 2, "class": 5, "hidden": 10, "heads": 2, "ffn": 14, "layers": 2}
    optimizer = rules.AdamW(lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.3, clip=1.0)
    rate = rules.Rate(lr=0.01, warmup=3, steps=12, decay="cosine")
    set = dict(lr=0.01, warmup=3, steps=12)

    def samples(self, n):
        d = self.defines
        return dict(image=("f32", pixels("image", (n, d["channel"], d["height"], d["width"]))), label=("i32", draw("label", (n,), d["class"])))

    def specs(self):
        d = self.defines
        E, H, N, C, P, cut = d["hidden"], d["heads"], d["ffn"], d["channel"], d["patch"], ("trunc_normal", 0.02)
        seq, bound = d["height"] * d["width"] // P ** 2 + 1, (C * P * P) ** -0.5
        out = [("cls", (E,), "zeros"), ("pos", (seq, E)) + cut]
        out += [("patchify.w", (E, C, P, P), "uniform", -bound, bound), ("patchify.b", (E,), "zeros")]
        for i in range(d["layers"]):
            p = "layer[%d]." % i
            out += norm(p + "ln1", E)
            for r in "qkv":
                out += dense(p + "attn." + r, (E,), (H, E // H), cut)
            out += dense(p + "attn.out", (H, E // H), (E,), cut) + norm(p + "ln2", E)
            out += dense(p + "mlp.up", (E,), (N,), cut) + dense(p + "mlp.down", (N,), (E,), cut)
        return out + norm("ln", E) + dense("head", (E,), (d["class"],), cut)

    def loss(self, w, image, label):
        eps = 1e-12
        p = F.conv2d(image, w["patchify.w"], w["patchify.b"], stride=self.defines["patch"])
        t = p.flatten(2).transpose(1, 2)
        x = torch.cat((w["cls"].expand(t.shape[0], 1, -1), t), dim=1) + w["pos"]
        for i in range(self.defines["layers"]):
            p = "layer[%d]." % i
            n = self.layernorm(p + "ln1", x, eps)
            x = x + self.attend(p + "attn", n, n)
            x = x + self.linear(p + "mlp.down", F.gelu(self.linear(p + "mlp.up", self.layernorm(p + "ln2", x, eps))))
        return ops.cross_entropy(self.linear("head", self.layernorm("ln", x, eps)[:, 0]), label)


class Mlp(Model):
    """Two layers, momentum."""
    name = "mlp"
    defines = {"batch": 4, "pixel": 9, "hidden": 7, "class": 5}
    optimizer = rules.Sgd(momentum=0.9)
    rate = rules.Rate(lr=0.1)

    def samples(self, n):
        return dict(image=("f32", pixels("image", (n, self.defines["pixel"]))), label=("i32", draw("label", (n,), self.defines["class"])))

    def specs(self):
        d, he = self.defines, lambda n: ("uniform", -(6.0 / n) ** 0.5, (6.0 / n) ** 0.5)
        return (dense("fc1", (d["pixel"],), (d["hidden"],), he(d["pixel"])) +
                dense("fc2", (d["hidden"],), (d["class"],), he(d["hidden"])))

    def loss(self, w, image, label):
        return ops.cross_entropy(self.linear("fc2", self.linear("fc1", image).relu()), label)


class TwoTower(Model):
    """Two stacks on one table; layers with and without a window, of two widths; each query is scored with all answers."""
    name = "two_tower"
    defines = dict(batch=3, seq=35, vocab=29, hidden=4, heads=2, layers=2)
    optimizer = rules.AdamW(lr=0.02, beta1=0.9, beta2=0.98, eps=1e-6, weight_decay=0.2, clip=0.0)
    rate = rules.Rate(lr=0.02, warmup=3, steps=12, decay="cosine")
    set = dict(lr=0.02, warmup=3, steps=12)
    whole = True                                                # one micro-batch only

    def samples(self, n):
        d = self.defines
        tokens = lambda name: ("i32", draw(name, (n, d["seq"]), d["vocab"]))
        return dict(query=tokens("query"), answer=tokens("answer"), label=("i32", np.arange(n) * 2 % 3))

    def specs(self):
        d = self.defines
        E, H, small = d["hidden"], d["heads"], ("normal", 0.02)
        out = [("tok", (d["vocab"], E)) + small]
        for p in ("%s.layer[%d]." % (side, i) for side in ("left", "right") for i in range(d["layers"])):
            N = 4 * E if p.endswith("[0].") else 8 * E
            out += norm(p + "norm1", E, bias=False) + [(p + "attn." + r + ".w", (E, H, E // H)) + small for r in "qkv"]
            out += [(p + "attn.out.w", (H, E // H, E)) + small] + norm(p + "norm2", E, bias=False)
            out += [(p + "mlp.gate.w", (E, N)) + small, (p + "mlp.up.w", (E, N)) + small, (p + "mlp.down.w", (N, E)) + small]
        return out

    def tower(self, side, x):
        for i in range(self.defines["layers"]):
            p = "%s.layer[%d]." % (side, i)
            x = x + self.rotary(p + "attn", self.rmsnorm(p + "norm1", x), window=32 if i % 2 == 0 else None)
            x = x + self.swiglu(p + "mlp", self.rmsnorm(p + "norm2", x))
        return x.mean(1)

    def loss(self, w, query, answer, label):
        return ops.cross_entropy(self.tower("left", w["tok"][query]) @ self.tower("right", w["tok"][answer]).T, label)


class Packed(Model):
    """A Llama on sequences of several documents; label smoothing; labels that do not count."""
    name, source = "packed", "tests/reference/%s.pmodel"
    defines = dict(batch=4, seq=11, vocab=17, hidden=8, heads=4, kv_heads=2, ffn=10, layers=2)
    optimizer = rules.AdamW(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)
    rate = rules.Rate(lr=0.01)

    def samples(self, n):
        d = self.defines
        starts = draw("starts", (n, d["seq"]), 4) == 0           # of documents: as many as it happens, of any length
        starts[:, 0] = True
        doc = starts.cumsum(1) + draw("first", (n, 1), 50)
        at = np.array([[s - max(k for k in range(s + 1) if row[k]) for s in range(d["seq"])] for row in starts])
        last = np.roll(starts, -1, axis=1)                      # the next token is another document's
        return dict(ids=("i32", draw("ids", (n, d["seq"]), d["vocab"])), at=("i32", at), doc=("i32", doc),
                    labels=("i32", np.where(last, -100, draw("labels", (n, d["seq"]), d["vocab"]))))

    def specs(self):
        d, wide = self.defines, ("normal", 0.2)
        E, H, G, N = d["hidden"], d["heads"], d["kv_heads"], d["ffn"]
        out = [("tok", (d["vocab"], E)) + wide]
        for i in range(d["layers"]):
            p = "layer[%d]." % i
            out += norm(p + "norm1", E, bias=False) + [(p + "attn.q.w", (E, H, E // H)) + wide]
            out += [(p + "attn." + r + ".w", (E, G, E // H)) + wide for r in "kv"] + [(p + "attn.out.w", (H, E // H, E)) + wide]
            out += norm(p + "norm2", E, bias=False)
            out += [(p + "mlp.gate.w", (E, N)) + wide, (p + "mlp.up.w", (E, N)) + wide, (p + "mlp.down.w", (N, E)) + wide]
        return out + norm("norm", E, bias=False)

    def loss(self, w, ids, at, doc, labels):
        x = w["tok"][ids]
        for i in range(self.defines["layers"]):
            p = "layer[%d]." % i
            x = x + self.rotary(p + "attn", self.rmsnorm(p + "norm1", x), at=at, doc=doc)
            x = x + self.swiglu(p + "mlp", self.rmsnorm(p + "norm2", x))
        return ops.cross_entropy(self.rmsnorm("norm", x) @ w["tok"].T, labels, ignore=-100, smooth=0.1)


MODELS = [Bert, T5, Vit, Mlp, TwoTower, Packed]


# -- training and writing --

def gradients(model, weights, batch, step):
    model.weights, model.step = {path: torch.tensor(a, requires_grad=True) for path, a in weights.items()}, step - 1
    tensors = {name: torch.tensor(np.array(a, dtype=np.float64 if kind[0] == "f" else np.int64)) for name, (kind, a) in batch.items()}
    loss = model.loss(model.weights, **tensors)
    loss.backward()
    return loss.item(), {path: t.grad.numpy().copy() for path, t in model.weights.items()}


def train(model, weights, samples):
    """Yields (step, loss, norm of gradients before clipping, gradients); changes the weights."""
    batch, total = model.defines["batch"], STEPS * model.defines["batch"]
    for step in range(1, STEPS + 1):
        first = (step - 1) * batch % total
        loss, grads = gradients(model, weights, {k: (t, a[first:first + batch]) for k, (t, a) in samples.items()}, step)
        model.optimizer.lr = model.rate(step)
        yield step, loss, model.optimizer.step(weights, grads), grads


def vanishes(path):
    """A key bias adds the same number to a row of scores, so softmax makes its gradient zero; only rounding is left."""
    return path.endswith("attn.k.b")


def write_inputs(out, samples):
    for name, (kind, a) in samples.items():
        text = records.integers(a.astype(np.int64)) if kind != "f32" else ",".join("%.10g" % x for x in a.ravel())
        out.add("input", name=name, type=kind, shape=records.integers(a.shape), values=text)


def write_weights(out, step, weights):
    for path, a in weights.items():
        out.add("weight", step=step, path=path, vanishes=int(step > 0 and vanishes(path)), shape=records.integers(a.shape),
                norm=records.number(records.norm(a)), first=records.numbers(a.ravel()[:4]))


def write_model(model):
    out = records.Records(model.name, dtype="f64", made_by="torch-" + torch.__version__.split("+")[0])
    out.comment("Made by make_models.py: `source` with -D `defines` and --set `values`. Numbers have 17 significant digits.")
    out.comment("Step t takes samples (t-1)*batch .. t*batch-1 of the inputs, in order. norm: L2 norm of all gradients before")
    out.comment("clipping; grad: gradients of step 1 before clipping; vanishes=1: zero in exact arithmetic.")
    join = lambda d: ",".join("%s=%s" % kv for kv in d.items()) or "-"
    out.add("model", source=model.source % model.name, defines=join(model.defines), whole=int(getattr(model, "whole", False)))
    out.add("set", values=join(model.set), seed=SEED)
    samples = model.samples(STEPS * model.defines["batch"])
    write_inputs(out, samples)
    weights = {path: rules.initial(kind, shape, path, SEED, args) for path, shape, kind, *args in model.specs()}
    write_weights(out, 0, weights)
    for step, loss, norm_of_all, grads in train(model, weights, samples):
        out.add("loss", step=step, value=records.number(loss))
        out.add("norm", step=step, value=records.number(norm_of_all))
        for path, g in grads.items() if step == 1 else ():
            out.tensor("grad", g, step=1, path=path, vanishes=int(vanishes(path)))
    write_weights(out, STEPS, weights)
    out.write(os.path.join(HERE, model.name + ".txt"))


def main():
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    rules.self_test()
    for cls in MODELS:
        if not sys.argv[1:] or cls.name in sys.argv[1:]:
            write_model(cls())
    return 0


if __name__ == "__main__":
    sys.exit(main())
