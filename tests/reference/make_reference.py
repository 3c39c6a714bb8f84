#!/usr/bin/env python3
"""Float64 reference numbers of two tiny models, made with PyTorch, written as text.

    python3 make_reference.py            check, then write tiny_gpt2.txt, tiny_llama.txt and init.txt here
    python3 make_reference.py --check    only the checks of this script itself

The models are tiny_gpt2.pmodel and tiny_llama.pmodel of this folder. PyTorch gives
the gradients; initial weights and the optimizer are the product's rules
(rules.py), so a file also says whether those were built as specified.
"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

import records
import rules

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, STEPS, BATCH, SEQ, VOCAB = 1, 10, 4, 12, 32
HYPER = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip=1.0)


def token(k):
    """The training stream; its formula stands in the files."""
    return (7 * k * k + 3 * k + k // 5) % VOCAB


class Gpt2:
    """Pre-norm decoder: learned positions, LayerNorm, biases everywhere, tanh GELU, tied head."""
    name = "tiny_gpt2"
    dims = dict(batch=BATCH, seq=SEQ, vocab=VOCAB, context=14, hidden=16, heads=2, head_dim=8, ffn=40)
    layers = 2

    def specs(self):
        d = self.dims
        E, H, D, N = d["hidden"], d["heads"], d["head_dim"], d["ffn"]
        linear = lambda path, left, right: [(path + ".w", left + right, "normal", (0.2,)), (path + ".b", right, "zeros", ())]
        norm = lambda path: [(path + ".w", (E,), "ones", ()), (path + ".b", (E,), "zeros", ())]
        out = [("wte", (d["vocab"], E), "normal", (0.2,)), ("wpe", (d["context"], E), "normal", (0.1,))]
        for i in range(self.layers):
            h = "h[%d]." % i
            out += norm(h + "ln1")
            for p in "qkv":
                out += linear(h + "attn." + p, (E,), (H, D))
            out += linear(h + "attn.out", (H, D), (E,)) + norm(h + "ln2")
            out += linear(h + "mlp.up", (E,), (N,)) + linear(h + "mlp.down", (N,), (E,))
        return out + norm("ln_f")

    def logits(self, w, ids):
        E = self.dims["hidden"]
        norm = lambda x, path: F.layer_norm(x, (E,), w[path + ".w"], w[path + ".b"], 1e-5)
        x = w["wte"][ids] + w["wpe"][torch.arange(ids.shape[1])]
        for i in range(self.layers):
            h = "h[%d]." % i
            n = norm(x, h + "ln1")
            q, k, v = (torch.einsum("bsd,dhe->bshe", n, w[h + "attn.%s.w" % p]) + w[h + "attn.%s.b" % p] for p in "qkv")
            a = attention(q, k, v)
            x = x + torch.einsum("bshe,hed->bsd", a, w[h + "attn.out.w"]) + w[h + "attn.out.b"]
            n = norm(x, h + "ln2")
            n = F.gelu(n @ w[h + "mlp.up.w"] + w[h + "mlp.up.b"], approximate="tanh")
            x = x + n @ w[h + "mlp.down.w"] + w[h + "mlp.down.b"]
        return norm(x, "ln_f") @ w["wte"].T


class Llama:
    """Pre-norm decoder: rotary grouped-query attention, RMSNorm, gated MLP, no biases, own head."""
    name = "tiny_llama"
    dims = dict(batch=BATCH, seq=SEQ, vocab=VOCAB, hidden=16, heads=4, kv_heads=2, head_dim=4, ffn=24, base=10000)
    layers = 2

    def specs(self):
        d = self.dims
        E, H, G, D, N = d["hidden"], d["heads"], d["kv_heads"], d["head_dim"], d["ffn"]
        normal = lambda path, *shape: (path, shape, "normal", (0.2,))
        ones = lambda path: (path, (E,), "ones", ())
        out = [normal("tok", d["vocab"], E)]
        for i in range(self.layers):
            p = "layer[%d]." % i
            out += [ones(p + "norm1.w"), normal(p + "attn.q.w", E, H, D), normal(p + "attn.k.w", E, G, D),
                    normal(p + "attn.v.w", E, G, D), normal(p + "attn.out.w", H, D, E), ones(p + "norm2.w"),
                    normal(p + "mlp.gate.w", E, N), normal(p + "mlp.up.w", E, N), normal(p + "mlp.down.w", N, E)]
        return out + [ones("norm.w"), normal("head.w", E, d["vocab"])]

    def logits(self, w, ids):
        d = self.dims
        norm = lambda x, path: F.rms_norm(x, (d["hidden"],), w[path], 1e-6)
        x = w["tok"][ids]
        for i in range(self.layers):
            p = "layer[%d]." % i
            n = norm(x, p + "norm1.w")
            q, k, v = (torch.einsum("bsd,dhe->bshe", n, w[p + "attn.%s.w" % r]) for r in "qkv")
            a = attention(rope(q, d["base"]), rope(k, d["base"]), v)
            x = x + torch.einsum("bshe,hed->bsd", a, w[p + "attn.out.w"])
            n = norm(x, p + "norm2.w")
            x = x + (F.silu(n @ w[p + "mlp.gate.w"]) * (n @ w[p + "mlp.up.w"])) @ w[p + "mlp.down.w"]
        return norm(x, "norm.w") @ w["head.w"]


def attention(q, k, v):
    """Causal; [batch, seq, heads, width]; fewer heads in k and v are shared by runs of query heads."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)


def rope(x, base):
    """Rotates element i with element i + e/2 (the pairing of Hugging Face's Llama) by position * base^(-2i/e)."""
    seq, e = x.shape[1], x.shape[3]
    rate = base ** (-torch.arange(0, e, 2, dtype=torch.float64) / e)
    angle = torch.arange(seq, dtype=torch.float64)[:, None] * rate
    cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
    a, b = x[..., : e // 2], x[..., e // 2:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def initial_weights(model):
    return {path: rules.initial(kind, shape, path, SEED, args) for path, shape, kind, args in model.specs()}


def batch(step):
    """Samples (step-1)*BATCH .. of the stream, in order; sample i starts at token i*SEQ; labels are the next tokens."""
    first = (step - 1) * BATCH
    rows = [[token(i * SEQ + s) for s in range(SEQ + 1)] for i in range(first, first + BATCH)]
    rows = torch.tensor(rows)
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, w, ids, labels):
    logits = model.logits(w, ids)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def gradients(model, weights, ids, labels):
    w = {path: torch.tensor(a, requires_grad=True) for path, a in weights.items()}
    loss = loss_of(model, w, ids, labels)
    loss.backward()
    return loss.item(), {path: t.grad.numpy().copy() for path, t in w.items()}


def vanishes(path):
    """A key bias adds the same number to a row of scores, so softmax makes its gradient zero; only rounding is left."""
    return path.endswith("attn.k.b")


def train(model, repeated=False):
    """Yields (step, loss, gradient norm before clipping, gradients, weights after the step); repeated: the first batch always."""
    weights, optimizer = initial_weights(model), rules.AdamW(**HYPER)
    for step in range(1, STEPS + 1):
        loss, grads = gradients(model, weights, *batch(1 if repeated else step))
        norm = optimizer.step(weights, grads)
        yield step, loss, norm, grads, weights


def write_model(model):
    out = records.Records(model.name, dtype="f64", made_by="torch-" + torch.__version__.split("+")[0])
    out.comment("Made by make_reference.py; model source %s.pmodel. Numbers have 17 significant digits." % model.name)
    out.comment("Initial weights: the product's own rule (Philox4x32-10 by path), seed below, in float64.")
    out.comment("tokens[k] = (7*k*k + 3*k + k/5) %% %d; sample i = tokens[i*seq .. i*seq+seq], labels = the next tokens;" % VOCAB)
    out.comment("step t takes samples (t-1)*batch .. t*batch-1, in order. Loss: mean over the labels of the batch.")
    out.comment("norm: L2 norm of all gradients before clipping; grad: gradients of step 1 before clipping.")
    out.comment("repeated: the same from the start, but every step takes the samples of step 1, so that their order does not matter.")
    out.comment("vanishes=1: zero in exact arithmetic; compare with the global norm, and not the weight after training.")
    out.add("model", layers=model.layers, **model.dims)
    out.add("train", seed=SEED, steps=STEPS, optimizer="adamw", **{k: records.number(v) for k, v in HYPER.items()})
    out.tensor("tokens", np.array([token(k) for k in range(STEPS * BATCH * SEQ + 1)]))
    for path, a in initial_weights(model).items():
        out.add("weight", step=0, path=path, shape=records.integers(a.shape),
                norm=records.number(records.norm(a)), first=records.numbers(a.ravel()[:4]))
    curve, first = [], {}
    for step, loss, norm, grads, weights in train(model):
        curve.append((step, loss, norm))
        first = first or grads
    for step, loss, _ in curve:
        out.add("loss", step=step, value=records.number(loss))
    for step, _, norm in curve:
        out.add("norm", step=step, value=records.number(norm))
    for path, g in first.items():
        out.tensor("grad", g, step=1, path=path, vanishes=int(vanishes(path)))
    write_weights(out, "weight", weights)
    for step, loss, norm, _, weights in train(model, repeated=True):
        out.add("repeated", step=step, loss=records.number(loss), norm=records.number(norm))
    write_weights(out, "repeated_weight", weights)
    out.write(os.path.join(HERE, model.name + ".txt"))


def write_weights(out, record, weights):
    for path, a in weights.items():
        out.add(record, step=STEPS, path=path, vanishes=int(vanishes(path)), shape=records.integers(a.shape),
                norm=records.number(records.norm(a)), first=records.numbers(a.ravel()[:4]))


def write_initialisers():
    """One small tensor per initialiser, seeds that need all four counter words, a length that is no multiple of 4."""
    out = records.Records("init", dtype="f64")
    out.comment("linear q.w[5, 3, 7]: fan_in 5, fan_out 21; linear out.w[3, 7, 5] over both: fan_in 21, fan_out 5.")
    seeds = (1, 0, 0xFFFFFFFF, 0x0123456789ABCDEF)
    cases = [("h[3].attn.q.w", (5, 3, 7), 5, 21), ("h[3].attn.out.w", (3, 7, 5), 21, 5)]
    kinds = [("normal", (0.02,)), ("trunc_normal", (0.02,)), ("uniform", (-0.5, 0.25)),
             ("auto", ()), ("xavier", ()), ("kaiming", ())]
    for seed in seeds:
        out.add("words", seed=seed, path="wte", values=records.integers(rules.words(10, "wte", seed)))
    for i, (kind, args) in enumerate(kinds):
        path, shape, fan_in, fan_out = cases[i % 2]
        a = rules.initial(kind, shape, path, seeds[i % 4], args, fan_in, fan_out)
        out.tensor("init", a, seed=seeds[i % 4], path=path, kind=kind, args=records.numbers(args) or "-",
                   fan_in=fan_in, fan_out=fan_out)
    out.write(os.path.join(HERE, "init.txt"))


# -- checks of this script itself --

def loops_logits(model, w, ids):
    """The model again for one sequence, in plain Python loops over numpy rows: no library op of the check's subject."""
    d, llama = model.dims, isinstance(model, Llama)
    E, H, D = d["hidden"], d["heads"], d["head_dim"]
    G = d.get("kv_heads", H)

    def norm(x, path):
        if llama:
            return x / math.sqrt((x * x).mean() + 1e-6) * w[path + ".w"]
        c = x - x.mean()
        return c / math.sqrt((c * c).mean() + 1e-5) * w[path + ".w"] + w[path + ".b"]

    def linear(x, path):
        weight = w[path + ".w"]
        y = x.ravel() @ weight.reshape(x.size, -1)
        return y + w[path + ".b"].ravel() if path + ".b" in w else y

    def turn(row, pos):
        half, out = D // 2, np.empty(D)
        for i in range(half):
            angle = pos * d["base"] ** (-2.0 * i / D)
            out[i] = row[i] * math.cos(angle) - row[i + half] * math.sin(angle)
            out[i + half] = row[i + half] * math.cos(angle) + row[i] * math.sin(angle)
        return out

    def mix(n, path):
        q, k, v = ([linear(row, path + p).reshape(-1, D) for row in n] for p in "qkv")
        if llama:
            q, k = ([np.stack([turn(head, s) for head in row]) for s, row in enumerate(rows)] for rows in (q, k))
        out = []
        for s in range(len(n)):
            heads = []
            for h in range(H):
                g = h // (H // G)
                score = np.array([q[s][h] @ k[t][g] / math.sqrt(D) for t in range(s + 1)])
                p = np.exp(score - score.max())
                heads.append(sum(p[t] / p.sum() * v[t][g] for t in range(s + 1)))
            out.append(linear(np.concatenate(heads), path + "out"))
        return out

    def feed(row, path):
        if llama:
            gate = linear(row, path + "gate")
            return linear(gate / (1.0 + np.exp(-gate)) * linear(row, path + "up"), path + "down")
        u = linear(row, path + "up")
        return linear(0.5 * u * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (u + 0.044715 * u ** 3))), path + "down")

    x = [w["tok"][t] if llama else w["wte"][t] + w["wpe"][s] for s, t in enumerate(ids)]
    for i in range(model.layers):
        p, n1, n2 = ("layer[%d]." % i, "norm1", "norm2") if llama else ("h[%d]." % i, "ln1", "ln2")
        x = [row + y for row, y in zip(x, mix([norm(row, p + n1) for row in x], p + "attn."))]
        x = [row + feed(norm(row, p + n2), p + "mlp.") for row in x]
    if llama:
        return np.stack([norm(row, "norm") @ w["head.w"] for row in x])
    return np.stack([norm(row, "ln_f") @ w["wte"].T for row in x])


def check_forward(model):
    weights = initial_weights(model)
    ids, labels = batch(1)
    total = 0.0
    for row, want in zip(ids.tolist(), labels.tolist()):
        logits = loops_logits(model, weights, row)
        for s, label in enumerate(want):
            top = logits[s].max()
            total += top + math.log(np.exp(logits[s] - top).sum()) - logits[s][label]
    loops = total / labels.numel()
    loss, _ = gradients(model, weights, ids, labels)
    assert abs(loops - loss) < 1e-13 * abs(loss), (model.name, loops, loss)
    return abs(loops - loss) / abs(loss)


def check_gradients(model):
    """Central differences, fourth order, on three elements of every weight; the worst error in parts of that weight's norm."""
    weights = initial_weights(model)
    ids, labels = batch(1)
    _, grads = gradients(model, weights, ids, labels)
    eps, worst = 1e-3, 0.0
    value = lambda: loss_of(model, {p: torch.from_numpy(a) for p, a in weights.items()}, ids, labels).item()
    for path, a in weights.items():
        for at in {0, a.size // 2, a.size - 1}:
            kept, sample = a.flat[at], {}
            for k in (-2, -1, 1, 2):
                a.flat[at] = kept + k * eps
                sample[k] = value()
            a.flat[at] = kept
            slope = (8.0 * (sample[1] - sample[-1]) - (sample[2] - sample[-2])) / (12.0 * eps)
            scale = max(records.norm(grads[path]), 1e-3)      # key biases: their own norm is rounding
            worst = max(worst, abs(slope - grads[path].flat[at]) / scale)
    assert worst < 1e-8, (model.name, worst)
    return worst


def check_training(model):
    """Ten steps of torch.optim.AdamW with its own parameter groups give the same losses and weights."""
    w = {path: torch.tensor(a, requires_grad=True) for path, a in initial_weights(model).items()}
    plain = lambda path: path.endswith(".b") or "norm" in path or ".ln" in path or path.startswith("ln")
    groups = [dict(params=[t for path, t in w.items() if not plain(path)], weight_decay=HYPER["weight_decay"]),
              dict(params=[t for path, t in w.items() if plain(path)], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=HYPER["lr"], betas=(HYPER["beta1"], HYPER["beta2"]), eps=HYPER["eps"])
    worst = 0.0
    for step, loss, norm, _, weights in train(model):
        optimizer.zero_grad()
        mine = loss_of(model, w, *batch(step))
        mine.backward()
        total = math.sqrt(sum((t.grad ** 2).sum().item() for t in w.values()))
        for t in w.values():
            t.grad *= min(1.0, HYPER["clip"] / total)
        optimizer.step()
        worst = max(worst, abs(mine.item() - loss) / abs(loss), abs(total - norm) / norm)
    for path, t in w.items():
        if not vanishes(path):
            worst = max(worst, records.norm(t.detach().numpy() - weights[path]) / max(records.norm(weights[path]), 1e-3))
    assert worst < 1e-11, (model.name, worst)
    return worst


def check(model):
    print("%s: loops against torch %.1e, finite differences %.1e, torch.optim.AdamW %.1e" % (
        model.name, check_forward(model), check_gradients(model), check_training(model)))


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rules.self_test()
    models = [Gpt2(), Llama()]
    for model in models:
        check(model)
    if "--check" in sys.argv[1:]:
        return
    for model in models:
        write_model(model)
    write_initialisers()


if __name__ == "__main__":
    main()
