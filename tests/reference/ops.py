#!/usr/bin/env python3
"""Float64 reference numbers of single ops, made with PyTorch, written to ops.txt.

A case is a `case` record (op and attributes in the language's words) followed by
`in` (inputs and weights), `out`, `dout` (the gradient that arrives) and `grad`
records. Inputs come from the product's generator, so cases do not change when
one is added; gradients are checked by finite differences before anything is written.
"""
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import records
import rules

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 7


def data(case, name, *shape):
    """Multiples of 1/64 in [-1, 1], a function of the case and the name alone: exact in f32, and short as text."""
    return torch.tensor(np.round(64.0 * rules.initial("uniform", shape, case + "/" + name, SEED, (-1.0, 1.0))) / 64.0)


# -- the ops, in the layout of the language; each returns the output --

def attention(q, k, v, causal=False, window=None, scale=None, mask=None, bias=None, doc=None, keep=1.0):
    """q[b, s, h, e], k and v[b, t, g, e]; window: keys a query sees back, itself included; mask[b, t]: true is attended;
    doc[b, s]: keys of the query's own document are; keep: what dropout multiplies probabilities [b, h, s, t] by."""
    h, g, e = q.shape[2], k.shape[2], q.shape[3]
    k, v = (x.repeat_interleave(h // g, dim=2) for x in (k, v))
    score = torch.einsum("bshe,bthe->bhst", q, k) * (1.0 / math.sqrt(e) if scale is None else scale)
    if bias is not None:
        score = score + bias
    query, key = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    visible = torch.ones(score.shape, dtype=torch.bool)
    if causal:
        visible = visible & (key <= query)
    if window is not None:
        visible = visible & (key > query - window)
    if mask is not None:
        visible = visible & mask[:, None, None, :]
    if doc is not None:
        visible = visible & (doc[:, None, :, None] == doc[:, None, None, :])
    return torch.einsum("bhst,bthe->bshe", keep * score.masked_fill(~visible, -math.inf).softmax(-1), v)


def cross_entropy(logits, labels, ignore=None, smooth=0.0):
    """Mean over the labels that are not ignored."""
    flat = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(flat, labels.reshape(-1), ignore_index=-100 if ignore is None else ignore, label_smoothing=smooth)


def rope(x, base=10000.0, at=None):
    """x[b, s, h, e]; at[b, s]: positions, the place in the sequence where there are none."""
    rate = base ** (-torch.arange(0, x.shape[3], 2, dtype=torch.float64) / x.shape[3])
    place = torch.arange(x.shape[1]) if at is None else at
    angle = (place.double()[..., None] * rate)[..., None, :]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def t5_bucket(distance, buckets, reach, two_way):
    """Bucket of (key position - query position), as T5 defines it (Raffel et al. 2020, and its published code)."""
    first = 0
    if two_way:
        buckets //= 2
        first, distance = (buckets if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    near = buckets // 2
    if distance < near:
        return first + distance
    # Powers that fall on a boundary exactly belong to the upper bucket: exact arithmetic, by integers.
    bucket = near
    while bucket < buckets - 1 and reaches(distance, near, reach, bucket + 1 - near, buckets - near):
        bucket += 1
    return first + bucket


def reaches(distance, near, reach, part, parts):
    """log(distance / near) / log(reach / near) >= part / parts, without rounding."""
    return distance ** parts * near ** part >= near ** parts * reach ** part


def relative_bias(w, queries, keys, buckets, reach, two_way):
    """w[bucket, h] -> [h, s, t]"""
    at = torch.tensor([[t5_bucket(t - s, buckets, reach, two_way) for t in range(keys)] for s in range(queries)])
    return w[at].permute(2, 0, 1)


# -- writing and checking --

def finite_difference(fn, inputs, name, dout):
    """Fourth-order slope of sum(out * dout) at three elements, against the gradient; worst error."""
    grads = inputs[name].grad.flatten()
    flat, eps, worst = inputs[name].data.view(-1), 1e-3, 0.0
    for at in {0, flat.numel() // 3, flat.numel() - 1}:
        kept, value = flat[at].item(), {}
        for k in (-2, -1, 1, 2):
            flat[at] = kept + k * eps
            value[k] = (fn(**inputs) * dout).sum().item()
        flat[at] = kept
        slope = (8.0 * (value[1] - value[-1]) - (value[2] - value[-2])) / (12.0 * eps)
        worst = max(worst, abs(slope - grads[at].item()))
    return worst


def write_case(out, name, op, fn, inputs, attributes=None, constants=None):
    """Inputs carry gradients; constants (ids, labels, masks) do not."""
    constants = constants or {}
    for t in inputs.values():
        t.requires_grad_(True)
    call = lambda **tensors: fn(**tensors, **constants)
    y = call(**inputs)
    dout = data(name, "dout", *y.shape) if y.dim() else torch.tensor(1.0)
    (y * dout).sum().backward()
    for key in inputs:
        error = finite_difference(call, inputs, key, dout)
        assert error < 1e-8 * max(1.0, records.norm(inputs[key].grad)), (name, key, error)
    out.add("case", name=name, op=op, **(attributes or {}))
    for key, t in {**inputs, **constants}.items():
        out.tensor("in", t.detach().numpy(), name=key)
    out.tensor("out", y.detach().numpy(), name="y")
    out.tensor("dout", dout.numpy(), name="y")
    for key, t in inputs.items():
        out.tensor("grad", t.grad.numpy(), name=key)


def attention_cases(out):
    def case(name, s, t, h, g, e, attributes, constants=None, bias=False, **keywords):
        tensors = {x: data(name, x, 2, n, m, e) for x, n, m in (("q", s, h), ("k", t, g), ("v", t, g))}
        if bias:
            tensors["bias"] = data(name, "bias", h, s, t)
        fn = lambda **a: attention(**a, **keywords)
        write_case(out, name, "attention", fn, tensors, attributes, constants)

    case("attention_full", 4, 6, 2, 2, 4, {})
    case("attention_causal", 5, 5, 2, 2, 6, dict(causal="true"), causal=True)
    case("attention_window", 7, 7, 2, 2, 4, dict(causal="true", window=3), causal=True, window=3)
    case("attention_grouped", 4, 4, 6, 2, 2, dict(causal="true"), causal=True)
    case("attention_grouped_window", 5, 5, 3, 1, 4, dict(causal="true", window=2), causal=True, window=2)
    mask = torch.tensor([[True, True, False, True, False], [False, True, True, True, True]])
    case("attention_mask", 4, 5, 2, 2, 4, {}, constants=dict(mask=mask))
    case("attention_bias", 3, 5, 2, 2, 4, dict(scale="1.0"), bias=True, scale=1.0)
    case("attention_bias_causal", 5, 5, 2, 2, 4, dict(causal="true", scale="1.0"), bias=True, causal=True, scale=1.0)


def loss_cases(out):
    labels = torch.tensor([[3, 0, 9, 5, 9], [1, 7, 2, 9, 4]])
    some = torch.tensor([[3, -100, 9, -100, 9], [1, 7, -100, 0, -100]])
    for name, want, keywords in [
        ("cross_entropy", labels, {}),
        ("cross_entropy_ignore", some, dict(ignore=-100)),
        ("cross_entropy_smooth", labels, dict(smooth=0.1)),
        ("cross_entropy_both", some, dict(ignore=-100, smooth=0.1)),
    ]:
        logits = data(name, "logits", 2, 5, 10) * 4.0
        write_case(out, name, "cross_entropy", lambda keywords=keywords, **a: cross_entropy(**a, **keywords),
                   dict(logits=logits), keywords, dict(labels=want))


def conv_cases(out):
    for name, size, kernel, stride, pad in [("conv2d_patch", (6, 9), 3, 3, 0), ("conv2d_pad", (5, 6), 3, 1, 1),
                                            ("conv2d_stride", (7, 8), 3, 2, 1)]:
        tensors = dict(x=data(name, "x", 2, 2, *size), w=data(name, "w", 3, 2, kernel, kernel), b=data(name, "b", 3))
        fn = lambda x, w, b, stride=stride, pad=pad: F.conv2d(x, w, b, stride=stride, padding=pad)
        write_case(out, name, "conv2d", fn, tensors, dict(kernel=kernel, stride=stride, pad=pad))


def position_cases(out):
    for name, s, t, buckets, reach, two_way in [("relative_bias_two_way", 6, 9, 8, 12, True),
                                                ("relative_bias_one_way", 9, 9, 6, 10, False)]:
        fn = lambda w, a=(s, t, buckets, reach, two_way): relative_bias(w, *a)
        write_case(out, name, "relative_bias", fn, dict(w=data(name, "w", buckets, 3)),
                   dict(s=s, t=t, buckets=buckets, reach=reach, two_way=str(two_way).lower()))
    for two_way in (True, False):
        span = np.arange(-140, 141)
        out.tensor("buckets", np.array([t5_bucket(int(d), 32, 128, two_way) for d in span]),
                   buckets=32, reach=128, two_way=str(two_way).lower(), first=-140)
    write_case(out, "rope", "rope", rope, dict(x=data("rope", "x", 1, 5, 2, 6)), dict(base="10000.0"))


def row_cases(out):
    x = lambda name: data(name, "x", 3, 2, 7)
    write_case(out, "layernorm", "layernorm", lambda x, w, b: F.layer_norm(x, (7,), w, b, 1e-5),
               dict(x=x("layernorm"), w=data("layernorm", "w", 7), b=data("layernorm", "b", 7)), dict(eps="1e-5"))
    write_case(out, "rmsnorm", "rmsnorm", lambda x, w: F.rms_norm(x, (7,), w, 1e-6),
               dict(x=x("rmsnorm"), w=data("rmsnorm", "w", 7)), dict(eps="1e-6"))
    write_case(out, "softmax", "softmax", lambda x: x.softmax(-1), dict(x=x("softmax") * 3.0))
    write_case(out, "gelu", "gelu", lambda x: F.gelu(x, approximate="tanh"), dict(x=x("gelu") * 4.0), dict(exact="false"))
    write_case(out, "gelu_exact", "gelu", lambda x: F.gelu(x), dict(x=x("gelu_exact") * 4.0), dict(exact="true"))
    write_case(out, "silu", "silu", lambda x: F.silu(x), dict(x=x("silu") * 4.0))


def published_bucket(distance, buckets, reach, two_way):
    """T5's formula in float64 with a logarithm; may differ from the exact one only on a boundary."""
    first = 0
    if two_way:
        buckets //= 2
        first, distance = (buckets if distance > 0 else 0), abs(distance)
    else:
        distance = max(-distance, 0)
    near = buckets // 2
    if distance < near:
        return first + distance, 0.5
    place = math.log(distance / near) / math.log(reach / near) * (buckets - near)
    return first + min(near + int(place), buckets - 1), place % 1.0


def self_test():
    for two_way in (True, False):
        for d in range(-400, 401):
            want, rest = published_bucket(d, 32, 128, two_way)
            assert t5_bucket(d, 32, 128, two_way) == want or min(rest, 1.0 - rest) < 1e-9, (d, two_way)
    q, k, v = (data("check", x, 2, 6, 3, 4) for x in "qkv")
    theirs = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    assert (attention(q, k, v, causal=True) - theirs).abs().max() < 1e-14


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rules.self_test()
    self_test()
    out = records.Records("ops", dtype="f64", made_by="torch-" + torch.__version__.split("+")[0])
    out.comment("Made by ops.py. Axes: attention q[b, s, h, e], k and v[b, t, g, e], mask[b, t], bias[h, s, t];")
    out.comment("conv2d x[b, c, h, w], w[out, c, kh, kw]; relative_bias w[bucket, h] -> [h, s, t]; rope x[b, s, h, e];")
    out.comment("buckets: T5's bucket of key - query = first, first + 1, ..; an exact power lies in the upper bucket.")
    attention_cases(out)
    loss_cases(out)
    conv_cases(out)
    position_cases(out)
    row_cases(out)
    out.write(os.path.join(HERE, "ops.txt"))


if __name__ == "__main__":
    main()
