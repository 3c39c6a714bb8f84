"""The product's numeric rules, written a second time, in numpy, from their definition.

The C side has its own implementation; a test compares the two through the
text files that the scripts of this folder write. Nothing here is shared with it.
"""
import math
from statistics import NormalDist

import numpy as np

NORMAL = NormalDist()          # its inv_cdf is Wichura's AS241 (PPND16), as in the product
MASK32 = 0xFFFFFFFF


def fnv1a(text):
    """FNV-1a, 32 bits, over the bytes of `text`."""
    h = 0x811C9DC5
    for byte in text.encode():
        h = ((h ^ byte) * 0x01000193) & MASK32
    return h


def philox4x32_10(counter, key):
    """Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): 4 words from 4 + 2."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def words(count, path, seed, step=0):
    """`count` 32-bit words; element i takes word i % 4 of counter i / 4."""
    key = (seed & MASK32, fnv1a(path))
    out = []
    for block in range((count + 3) // 4):
        out.extend(philox4x32_10((block & MASK32, block >> 32, step, seed >> 32), key))
    return out[:count]


def uniforms(count, path, seed):
    """The middle of one of 2^32 equal cells of (0, 1): never 0, never 1."""
    return [(word + 0.5) / 4294967296.0 for word in words(count, path, seed)]


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def initial(kind, shape, path, seed, args=(), fan_in=None, fan_out=None):
    """Elements row-major in the global shape, float64."""
    count = int(np.prod(shape))
    if kind == "zeros":
        values = [0.0] * count
    elif kind == "ones":
        values = [1.0] * count
    elif kind == "normal":
        values = [args[0] * NORMAL.inv_cdf(u) for u in uniforms(count, path, seed)]
    elif kind == "trunc_normal":      # cut at two standard deviations
        low, high = phi(-2.0), phi(2.0)
        values = [args[0] * NORMAL.inv_cdf(low + (high - low) * u) for u in uniforms(count, path, seed)]
    else:
        low, high = {
            "uniform": lambda: args,
            "auto": lambda: symmetric(1.0 / math.sqrt(fan_in)),
            "xavier": lambda: symmetric(math.sqrt(6.0 / (fan_in + fan_out))),
            "kaiming": lambda: symmetric(math.sqrt(6.0 / fan_in)),
        }[kind]()
        values = [low + (high - low) * u for u in uniforms(count, path, seed)]
    return np.array(values, dtype=np.float64).reshape(shape)


def symmetric(bound):
    return -bound, bound


def decays(path, w):
    """Matrices and tables do; norms and biases do not, also a bias over two axes (attn.q.b[heads, head_dim])."""
    return w.ndim >= 2 and not path.endswith(".b")


def dropout(shape, path, seed, step, p):
    """What each element is multiplied by in the step-th step, from 0: kept when its word is at least floor(p * 2^32)."""
    count, threshold = int(np.prod(shape)), math.floor(p * 4294967296.0)
    return np.array([1.0 / (1.0 - p) if w >= threshold else 0.0 for w in words(count, path, seed, step)]).reshape(shape)


class Rate:
    """Linear over `warmup` steps up to lr, then down to min_lr, which step number `steps` has."""

    def __init__(self, lr, warmup=0, steps=0, decay="none", min_lr=0.0):
        self.lr, self.warmup, self.steps, self.decay, self.min_lr = lr, warmup, steps, decay, min_lr

    def __call__(self, step):
        """Of a step, from 1."""
        if step <= self.warmup:
            return self.lr * step / self.warmup
        if self.decay == "none":
            return self.lr
        done = min(1.0, (step - self.warmup) / (self.steps - self.warmup))
        left = {"cosine": 0.5 * (1.0 + math.cos(math.pi * done)), "linear": 1.0 - done}[self.decay]
        return self.min_lr + (self.lr - self.min_lr) * left


class Sgd:
    """Momentum as in PyTorch: m = momentum * m + g; no clipping, no decay."""

    def __init__(self, momentum):
        self.lr, self.momentum, self.m = 0.0, momentum, {}

    def step(self, weights, grads):
        """As AdamW.step."""
        for name, w in weights.items():
            self.m[name] = self.momentum * self.m.get(name, 0.0) + grads[name]
            w -= self.lr * self.m[name]
        return math.sqrt(sum(float((g * g).sum()) for g in grads.values()))


class AdamW:
    """Decoupled decay, bias-corrected moments; one clip factor min(1, clip / norm) for all weights."""

    def __init__(self, lr, beta1, beta2, eps, weight_decay, clip):
        self.lr, self.beta1, self.beta2 = lr, beta1, beta2
        self.eps, self.weight_decay, self.clip = eps, weight_decay, clip
        self.t, self.m, self.v = 0, {}, {}

    def step(self, weights, grads):
        """Update `weights` (name -> array) in place; return the norm of `grads` before clipping."""
        norm = math.sqrt(sum(float((g * g).sum()) for g in grads.values()))
        scale = min(1.0, self.clip / norm) if self.clip > 0 and norm > 0 else 1.0
        self.t += 1
        c1, c2 = 1.0 - self.beta1 ** self.t, 1.0 - self.beta2 ** self.t
        for name, w in weights.items():
            g = grads[name] * scale
            m = self.m[name] = self.beta1 * self.m.get(name, 0.0) + (1.0 - self.beta1) * g
            v = self.v[name] = self.beta2 * self.v.get(name, 0.0) + (1.0 - self.beta2) * g * g
            decay = self.weight_decay if decays(name, w) else 0.0
            w -= self.lr * (m / c1 / (np.sqrt(v / c2) + self.eps) + decay * w)
        return norm


def self_test():
    """Published known answers, so that both sides cannot be wrong in the same way."""
    assert fnv1a("") == 0x811C9DC5 and fnv1a("a") == 0xE40C292C and fnv1a("foobar") == 0xBF9CF968
    for counter, key, want in [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((MASK32,) * 4, (MASK32,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ]:
        assert philox4x32_10(counter, key) == want
    assert abs(NORMAL.inv_cdf(0.975) - 1.959963984540054) < 1e-14
