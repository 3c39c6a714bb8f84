#!/usr/bin/env python3
"""Measures `prun` against PyTorch in one run, and prints the tables of `make bench`.

    compare.py step --prun P --plan X.plan --batch 4 --seq 64 --threads 1 --out results.jsonl
    compare.py table --steps results.jsonl --gemm gemm.jsonl ...

`step` keeps PyTorch processes warm and lets them and prun take turns, a few steps
each, so that a change of clock or a neighbour on the machine meets both; the
medians are over all rounds. `table` prints the ratios and fails where one is
below its bar.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WARMUP = 2                          # steps of prun that do not count, after each start
STEP_BAR, GEMM_BAR = 1.0, 0.85      # must be reached
GOAL = {(64, 1): 1.1, (64, 2): 1.4}     # (seq, threads): reported only
# How often a step of GPT-2 124M does each product: q, k, v and out are alike; 12 layers, one head.
PER_STEP = {"attn": 4 * 12, "mlp": 12, "head": 1}


class Torch:
    """A warm PyTorch process that runs one step for each line it is sent; `script` is peer_torch.py or takes its options."""

    def __init__(self, script, args, mode):
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, script), "--serve", "--batch", str(args.batch),
             "--seq", str(args.seq), "--threads", str(args.threads), "--mode", mode],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.read()                 # it is warm

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("compare: the PyTorch peer ended with status %s" % self.process.wait())
        return json.loads(line)

    def steps(self, count):
        """(wall seconds of each, processor seconds of all)"""
        records = []
        for _ in range(count):
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
            records.append(self.read())
        return [r["seconds"] for r in records], sum(r["cpu_seconds"] for r in records)

    def finish(self):
        self.process.stdin.close()
        summary = self.read()
        self.process.wait()
        return summary


PrunSteps = collections.namedtuple("PrunSteps", (
    "seconds",      # of the wall, of each step after the warm-up
    "cpu",          # processor seconds, of all processes and steps
    "resident",     # MB, of the largest process at its largest
    "losses"))      # of all steps


def prun_steps(prun, plan, count, *options):
    with tempfile.TemporaryDirectory() as folder:
        log, errors = os.path.join(folder, "log"), os.path.join(folder, "errors")
        with open(errors, "w") as e:
            p = subprocess.Popen([prun, plan, "--data", "random", "--steps", str(WARMUP + count), "--log", log, *options],
                                 stdout=subprocess.DEVNULL, stderr=e)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        if p.returncode != 0:
            sys.exit("compare: %s failed with status %d:\n%s" % (prun, p.returncode, open(errors).read()))
        with open(log) as f:
            records = [r for r in map(json.loads, f) if "step" in r and "seconds" in r]
    seconds = [r["seconds"] for r in records][WARMUP:]
    if len(seconds) != count:
        sys.exit("compare: the log of %s has %d timed steps, expected %d" % (prun, len(seconds), count))
    return PrunSteps(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, [r["loss"] for r in records])


def machine_busy():
    """Processor seconds used by anybody since the machine started: user, nice, system, irq, softirq, steal."""
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:]]
    return (sum(fields[0:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def measure(args):
    """prun and PyTorch, eager and compiled, in turns; the faster PyTorch is the peer."""
    peers = {mode: Torch("peer_torch.py", args, mode) for mode in args.modes.split(",")}
    ours, theirs, used, rss = [], {mode: [] for mode in peers}, 0.0, 0.0
    start, busy = time.monotonic(), machine_busy()
    for turn in range(args.rounds):
        order = ["prun"] + list(peers)
        for who in order if turn % 2 == 0 else order[::-1]:
            if who == "prun":
                turn_of_ours = prun_steps(args.prun, args.plan, args.steps)
                ours += turn_of_ours.seconds
                used += turn_of_ours.cpu
                rss = max(rss, turn_of_ours.resident)
            else:
                seconds, cpu = peers[who].steps(args.steps)
                theirs[who] += seconds
                used += cpu
    others = (machine_busy() - busy - used) / (time.monotonic() - start)
    medians = {mode: statistics.median(all_of) for mode, all_of in theirs.items()}
    best = min(medians, key=medians.get)
    summary = {mode: peer.finish() for mode, peer in peers.items()}[best]
    result = dict(batch=args.batch, seq=args.seq, threads=args.threads, rounds=args.rounds, steps=args.steps,
                  prun_seconds=statistics.median(ours), prun_all=ours, prun_rss_mb=round(rss, 1),
                  torch_seconds=medians[best], torch_medians=medians, torch_all=theirs, torch_rss_mb=summary["peak_rss_mb"],
                  others=round(max(0.0, others), 2), torch=summary)
    with open(args.out, "a") as f:
        f.write(json.dumps(result) + "\n")


def read_lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def print_peer(summary, *more):
    """Version and settings of a PyTorch process, from its summary; `more`: names of further settings in it."""
    print("peer: PyTorch %s (%s)" % (summary["version"], "; ".join(summary["libraries"])))
    print("      %s; %s" % (", ".join("%s %s" % (k, summary[k]) for k in ("attention", "head", "optimizer") + more),
                           " ".join("%s=%s" % kv for kv in sorted(summary["environment"].items()))))


def step_table(path):
    """True when every ratio reaches the bar."""
    rows = read_lines(path)
    if not rows:
        sys.exit("compare: %s has no result" % path)
    print("\nOne training step, GPT-2 124M, f32, median of %d steps in %d turns" % (
        rows[0]["rounds"] * rows[0]["steps"], rows[0]["rounds"]))
    print_peer(rows[0]["torch"])
    print("\n%5s %5s %7s | %9s %9s %8s | %9s %9s %8s | %6s %6s | %s" % (
        "batch", "seq", "threads", "prun s", "tokens/s", "MB", "torch s", "tokens/s", "MB", "ratio", "goal", "others  torch mode"))
    good = True
    for r in rows:
        ratio, goal = r["torch_seconds"] / r["prun_seconds"], GOAL.get((r["seq"], r["threads"]))
        tokens = r["batch"] * r["seq"]
        met = "" if goal is None else "%.1f%s" % (goal, " " if ratio >= goal else "-")
        print("%5d %5d %7d | %9.3f %9.1f %8.0f | %9.3f %9.1f %8.0f | %5.2fx %6s | %6.2f  %s" % (
            r["batch"], r["seq"], r["threads"], r["prun_seconds"], tokens / r["prun_seconds"], r["prun_rss_mb"],
            r["torch_seconds"], tokens / r["torch_seconds"], r["torch_rss_mb"], ratio, met, r["others"], r["torch"]["mode"]))
        good &= ratio >= STEP_BAR
    print("ratio: speed of prun over PyTorch; '-' behind a goal: not reached; others: processors kept busy by other programs")
    if any(r["others"] > 0.1 for r in rows):
        print("warning: other programs were running; take the figures as preliminary")
    return good


def gemm_table(path):
    """True when our product reaches the bar against the fastest installed one on every shape."""
    records = read_lines(path)
    rows, threads = records[1]["rows"], records[1]["threads"]
    print("\nMatrix products of a step of %d tokens, %d thread%s, GFLOP/s (%s)" % (
        rows, threads, "" if threads == 1 else "s", records[0]["providers"]))
    shapes = {}
    for r in records[1:]:
        shapes.setdefault((r["op"], r["m"], r["n"], r["k"], r["role"]), {})[r["provider"]] = r["gflops"]
    print("%-17s %-2s %18s | %7s | %s" % ("product", "", "m x n x k", "prun", "fastest installed"))
    good, ours, best = True, 0.0, 0.0
    for (op, m, n, k, role), rate in shapes.items():
        fastest = max((p for p in rate if p != "prun"), key=rate.get)
        ratio = rate["prun"] / rate[fastest]
        good &= ratio >= GEMM_BAR
        print("%-17s %-2s %18s | %7.1f | %-11s %7.1f  %3.0f %%%s" % (
            role, op, "%d x %d x %d" % (m, n, k), rate["prun"], fastest, rate[fastest], 100 * ratio,
            "" if ratio >= GEMM_BAR else "  below %.0f %%" % (100 * GEMM_BAR)))
        work = 2e-9 * m * n * k * PER_STEP[role.split(".")[0].split(" ")[0]]
        ours, best = ours + work / rate["prun"], best + work / rate[fastest]
    print("all products of a step at these rates: %.3f s, at the fastest of each shape %.3f s: %.0f %%" % (
        ours, best, 100 * best / ours))
    return good


def table(args):
    verdict = {"a step below %.1fx of PyTorch" % STEP_BAR: args.steps and not step_table(args.steps),
               "a product below %.0f %% of the fastest" % (100 * GEMM_BAR): not all([gemm_table(f) for f in args.gemm])}
    failed = [what for what, is_so in verdict.items() if is_so]
    print("\nbench: " + ("FAILED: " + "; ".join(failed) if failed else "every bar is reached"))
    return 1 if failed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = p.add_subparsers(dest="what", required=True)
    s = sub.add_parser("step")
    for name in ("prun", "plan", "out"):
        s.add_argument("--" + name, required=True)
    for name, value in (("batch", 4), ("seq", 64), ("threads", 1), ("rounds", 3), ("steps", 3)):
        s.add_argument("--" + name, type=int, default=value)
    s.add_argument("--modes", default="eager,compile", help="of PyTorch; the fastest counts")
    t = sub.add_parser("table")
    t.add_argument("--steps")
    t.add_argument("--gemm", nargs="*", default=[])
    args = p.parse_args()
    if args.what == "table":
        return table(args)
    return measure(args)


if __name__ == "__main__":
    sys.exit(main())
