#!/usr/bin/env python3
"""One training step of GPT-2 124M in PyTorch, timed: the peer of `prun` in `make bench`.

    peer_torch.py --batch 4 --seq 64 --threads 1

Prints one JSON line per timed step, then one summary line. What it runs is what
`prun` runs: forward, loss, backward, global-norm clip, AdamW, in f32 on random
tokens. The defaults are the fastest settings found on a CPU (README.md says what
was tried); the process restarts itself once, because allocator and OpenMP
settings are read from the environment when the program is loaded.
"""
import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

RESTARTED = "PEER_TORCH_ENVIRONMENT_SET"

# Never give memory back and never mmap a temporary: a first touch of a page costs
# more than the arithmetic done on it. Huge pages for the heap (glibc 2.35 and later).
ALLOCATORS = {
    "default": {},
    "keep": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "16000000000", "MALLOC_TOP_PAD_": "268435456"},
    "huge": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "16000000000", "MALLOC_TOP_PAD_": "268435456",
             "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
}
# Variables that would let the caller's shell decide how the peer runs.
CLEARED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "LD_PRELOAD", "OMP_PROC_BIND", "KMP_AFFINITY", "KMP_BLOCKTIME")


def parser(description):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("--batch", type=int, default=4, help="sequences a step")
    p.add_argument("--seq", type=int, default=64, help="tokens a sequence")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=5, help="timed steps")
    p.add_argument("--warmup", type=int, default=2, help="steps before the first timed one")
    p.add_argument("--mode", choices=("eager", "compile"), default="eager")
    p.add_argument("--attention", choices=("sdpa", "manual"), default="sdpa")
    p.add_argument("--head", choices=("plain", "padded", "chunked"), default="padded",
                   help="padded: 50304 rows in the table, nanoGPT's way; chunked: linear_cross_entropy")
    p.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    p.add_argument("--allocator", choices=sorted(ALLOCATORS), default="huge")
    p.add_argument("--wait", choices=("passive", "active"), default="passive", help="what idle OpenMP threads do")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--hidden", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--serve", action="store_true",
                   help="after warm-up, time one step for each line read from standard input (for interleaved runs)")
    return p


def restart_with_settings(args):
    """Environment settings act when libraries are loaded, so set them and start again."""
    if os.environ.get(RESTARTED) == "1":
        return
    env = {k: v for k, v in os.environ.items() if k not in CLEARED and not k.startswith("MALLOC_")}
    env.update(ALLOCATORS[args.allocator])
    env.update({RESTARTED: "1", "OMP_WAIT_POLICY": args.wait,
                "OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)})
    os.execve(sys.executable, [sys.executable] + sys.argv, env)


def build(args):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(args.hidden), nn.LayerNorm(args.hidden)
            self.qkv, self.out = nn.Linear(args.hidden, 3 * args.hidden), nn.Linear(args.hidden, args.hidden)
            self.up, self.down = nn.Linear(args.hidden, 4 * args.hidden), nn.Linear(4 * args.hidden, args.hidden)

        def forward(self, x):
            batch, seq, hidden = x.shape
            q, k, v = self.qkv(self.ln1(x)).split(hidden, dim=2)
            q, k, v = (t.view(batch, seq, args.heads, hidden // args.heads).transpose(1, 2) for t in (q, k, v))
            if args.attention == "sdpa":
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                later = torch.ones(seq, seq, dtype=torch.bool).triu(1)
                score = (q @ k.transpose(2, 3)) / math.sqrt(hidden // args.heads)
                a = score.masked_fill(later, float("-inf")).softmax(3) @ v
            x = x + self.out(a.transpose(1, 2).reshape(batch, seq, hidden))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            rows = -(-args.vocab // 128) * 128 if args.head == "padded" else args.vocab
            self.wte, self.wpe = nn.Embedding(rows, args.hidden), nn.Embedding(1024, args.hidden)
            self.h = nn.ModuleList(Block() for _ in range(args.layers))
            self.ln_f = nn.LayerNorm(args.hidden)
            for p in self.parameters():
                if p.dim() >= 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, ids, labels):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.h:
                x = block(x)
            x = self.ln_f(x).view(-1, args.hidden)
            if args.head == "chunked":
                return F.linear_cross_entropy(x, self.wte.weight, labels.reshape(-1))
            return F.cross_entropy(F.linear(x, self.wte.weight), labels.reshape(-1))      # tied

    return Gpt2()


def compiled(args, model):
    import torch
    return torch.compile(model) if args.mode == "compile" else model


def make_step(args, prepare=compiled):
    """Returns (step function giving the loss, number of parameters); `prepare` makes of a model what is called."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    model = build(args)
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    how = {"fused": True} if args.optimizer == "fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, **how)
    forward = prepare(args, model)

    def step():
        tokens = torch.randint(0, args.vocab, (args.batch, args.seq + 1))
        optimizer.zero_grad(set_to_none=True)
        loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        return loss.item()

    return step, sum(p.numel() for p in params)


def matmul_flops(args, parameters):
    """6 x matmul parameters (head included) x tokens, plus attention in full: 12 x layers x seq x hidden x tokens."""
    weights = 12 * args.layers * args.hidden ** 2 + args.vocab * args.hidden
    return (6 * weights + 12 * args.layers * args.seq * args.hidden) * args.batch * args.seq


def timed(step):
    """Seconds of the wall, of the process's threads together, and the loss."""
    start, cpu = time.perf_counter(), time.process_time()
    loss = step()
    return time.perf_counter() - start, time.process_time() - cpu, loss


def emit(**fields):
    print(json.dumps(fields), flush=True)


def settings(args):
    import torch
    shown = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
    libraries = [line.strip(" -") for line in torch.__config__.show().splitlines()
                 if "Math Kernel Library" in line or "MKL-DNN" in line or "CPU capability" in line]
    return dict(mode=args.mode, attention=args.attention, head=args.head, optimizer=args.optimizer, allocator=args.allocator,
                environment={k: os.environ[k] for k in shown if k in os.environ}, libraries=libraries)


def report(args, parameters, one, **more):
    """Warm up; time steps, each a call of `one` giving what timed() gives; print the lines."""
    import torch
    for _ in range(args.warmup):
        one()
    seconds, cpu_seconds = [], []
    ticks = sys.stdin if args.serve else range(args.steps)
    if args.serve:
        emit(ready=True)
    for i, _ in enumerate(ticks):
        wall, cpu, loss = one()
        seconds.append(wall)
        cpu_seconds.append(cpu)
        emit(step=i, seconds=round(wall, 6), cpu_seconds=round(cpu, 6), loss=round(loss, 4))
    median = statistics.median(seconds) if seconds else float("nan")
    emit(peer="torch", version=torch.__version__, batch=args.batch, seq=args.seq, threads=args.threads,
         parameters=parameters, median_seconds=round(median, 6), best_seconds=round(min(seconds, default=median), 6),
         median_cpu_seconds=round(statistics.median(cpu_seconds), 6) if cpu_seconds else None,
         tokens_per_s=round(args.batch * args.seq / median, 1), gflops=round(matmul_flops(args, parameters) / median / 1e9, 1),
         peak_rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1), **settings(args), **more)


def main():
    args = parser(__doc__.split("\n")[0]).parse_args()
    restart_with_settings(args)
    step, parameters = make_step(args)
    report(args, parameters, lambda: timed(step))


if __name__ == "__main__":
    main()
