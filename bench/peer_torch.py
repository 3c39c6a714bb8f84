#!/usr/bin/env python3
"""One training step of a model of peer_models.py in PyTorch, timed: the peer of `prun` in `make bench`.

    peer_torch.py --model gpt2 --dtype f32 --batch 4 --seq 64 --threads 1

Prints one JSON line per timed step, then one summary line. What it runs is what
`prun` runs: forward, loss, backward, global-norm clip, AdamW, on random tokens. The
defaults are the fastest settings found on a CPU (README.md says what was tried); the
process restarts itself once, because allocator and OpenMP settings are read from the
environment when the program is loaded.
"""
import argparse
import json
import os
import statistics
import sys
import time

import peer_models

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
    p.add_argument("--model", choices=sorted(peer_models.SHAPES), default="gpt2")
    p.add_argument("--shape", default="", help="other sizes than the model's own: 'layers=48 hidden=1600'")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--dtype", choices=("f32", "autocast", "medium", "bf16"), default="f32",
                   help="autocast: bf16 products of f32 weights; medium: f32 but for products in oneDNN, "
                        "set_float32_matmul_precision('medium'); bf16: weights, gradients and moments of bf16 too, another job")
    p.add_argument("--batch", type=int, default=4, help="sequences a step")
    p.add_argument("--seq", type=int, default=64, help="tokens a sequence")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=5, help="timed steps")
    p.add_argument("--warmup", type=int, default=2, help="steps before the first timed one")
    p.add_argument("--mode", choices=("eager", "compile"), default="eager")
    p.add_argument("--compile", choices=("whole", "parts"),
                   help="parts: each layer and the end by itself; layers are alike, so it compiles sooner. Default: parts for f32, whole else")
    p.add_argument("--attention", choices=("sdpa", "manual"), default="sdpa")
    p.add_argument("--head", choices=("plain", "padded", "chunked"), default="padded",
                   help="padded: GPT-2's 50257 rows become 50304, nanoGPT's way; chunked: linear_cross_entropy")
    p.add_argument("--optimizer", choices=("fused", "foreach"), default="fused")
    p.add_argument("--allocator", choices=sorted(ALLOCATORS), default="huge")
    p.add_argument("--wait", choices=("passive", "active"), default="passive", help="what idle OpenMP threads do")
    p.add_argument("--gqa", choices=("native", "repeat"), default="native", help="fewer kv heads: by attention itself, or repeated")
    p.add_argument("--serve", action="store_true",
                   help="after warm-up, time one step for each line read from standard input (for interleaved runs)")
    return p


def complete(args):
    """Adds the sizes of the model, and what depends on other options."""
    vars(args).update(peer_models.shape_of(args.model, args.shape))
    args.compile = args.compile or ("parts" if args.dtype == "f32" else "whole")
    return args


def restart_with_settings(args):
    """Environment settings act when libraries are loaded, so set them and start again."""
    if os.environ.get(RESTARTED) == "1":
        return
    env = {k: v for k, v in os.environ.items() if k not in CLEARED and not k.startswith("MALLOC_")}
    env.update(ALLOCATORS[args.allocator])
    env.update({RESTARTED: "1", "OMP_WAIT_POLICY": args.wait,
                "OMP_NUM_THREADS": str(args.threads), "MKL_NUM_THREADS": str(args.threads)})
    os.execve(sys.executable, [sys.executable] + sys.argv, env)


def compiled(args, model):
    """What is called as the model; changed in place where its parts are compiled."""
    import torch
    if args.mode == "eager":
        return model
    if args.compile == "whole":
        return torch.compile(model)
    for part in (*model.blocks, model.end):
        part.compile()
    return model


def make_step(args, prepare=compiled):
    """Returns (step function giving the loss, number of parameters); `prepare` makes of a model what is called."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    with torch.device(args.device):
        model = peer_models.build(args)
    if args.dtype == "bf16":
        model.to(torch.bfloat16)
    if args.dtype == "medium":
        torch.set_float32_matmul_precision("medium")
    forward = prepare(args, model)
    params = list(model.parameters())
    groups = [dict(params=[p for p in params if p.dim() >= 2], weight_decay=0.1),
              dict(params=[p for p in params if p.dim() < 2], weight_decay=0.0)]
    how = {"fused": True} if args.optimizer == "fused" else {"foreach": True}
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, **how)

    def step():
        tokens = torch.randint(0, args.vocab, (args.batch, args.seq + 1), device=args.device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "autocast"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        return loss.item()

    return step, sum(p.numel() for p in params)


def matmul_flops(args):
    """6 x matmul parameters (head included) x tokens, plus attention in full: 12 x layers x seq x hidden x tokens."""
    return (6 * peer_models.linear_weights(args) + 12 * args.layers * args.seq * args.hidden) * args.batch * args.seq


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
    return dict(model=args.model, device=args.device, dtype=args.dtype, mode=args.mode, compile=args.compile if args.mode == "compile" else None, attention=args.attention, head=args.head, optimizer=args.optimizer, allocator=args.allocator,
                environment={k: os.environ[k] for k in shown if k in os.environ}, libraries=libraries)


def pss_mb(pids):
    """MB of memory of the processes together; a page that n of them share counts as an n-th of it for each."""
    total = 0
    for pid in pids:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return round(total / 1024, 1)


def peak_mb(args):
    """MB of the GPU's memory that PyTorch had at most; None on the cpu."""
    import torch
    return round(torch.cuda.max_memory_reserved() / 1024 / 1024, 1) if args.device == "cuda" else None


def report(args, parameters, one, followers=(), **more):
    """Warm up; time steps, each a call of `one` giving what timed() gives; print the lines. `followers`: pids of the other ranks."""
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
         tokens_per_s=round(args.batch * args.seq / median, 1), gflops=round(matmul_flops(args) / median / 1e9, 1),
         pss_mb=pss_mb((os.getpid(), *followers)), peak_mb=peak_mb(args), **settings(args), **more)


def main():
    args = complete(parser(__doc__.split("\n")[0]).parse_args())
    restart_with_settings(args)
    step, parameters = make_step(args)
    report(args, parameters, lambda: timed(step))


if __name__ == "__main__":
    main()
