#!/usr/bin/env python3
"""Measures the collectives of `prun` against Open MPI in one run, and prints the tables.

    comm.py --ours build/release/bench/bench_comm --mpi build/release/bench/peer_mpi

The two programs take turns. Ratios are of figures of the same turn, so that a change
of clock, a neighbour or a move of a virtual processor meets both; medians are over
the turns, and the spread is an interval that holds the true median in 95 of 100 runs.
Fails where a figure is below its bar. README.md says how to read the table.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time

from programs import machine_busy

KIB, MIB = 1 << 10, 1 << 20
LIMIT_BAR, LIMIT_GOAL = 0.70, 0.80          # of the speed of a copy: 2 ranks, 1 MiB and up
RATIO_FROM = {2: KIB, 4: 256 * KIB}         # ranks: bytes from which prun must not be the slower one
EQUAL_WITHIN = 0.05                         # a median below 1 counts as not slower if the spread holds 1 and reaches no further down
AGAIN = 25                                  # turns of a row that was too noisy to judge
LARGE_GOAL = 4.0                            # times Open MPI, 2 ranks, 64 MiB, all_reduce
SMALL_GOAL = 12.0                           # us, 4 ranks, 8 bytes, all_reduce
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "16000000000", "MALLOC_TOP_PAD_": "268435456"}


def mpirun(args, ranks, *what):
    """The peer at its best: pinned where cores suffice, yielding where not, and an allocator that keeps its memory."""
    bind = ["--bind-to", "core"] if ranks <= os.cpu_count() else ["--bind-to", "core:overload-allowed", "--oversubscribe"]
    passed = [word for name in ALLOCATOR for word in ("-x", name)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *root, "-np", str(ranks), *bind, *passed, args.mpi, *what]


def output_of(command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "OMPI_"))}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**environment, **ALLOCATOR})
    if done.returncode != 0:
        sys.exit("comm: %s failed with status %d" % (" ".join(command), done.returncode))
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def take_turns(rounds, pairs):
    """A list of turns, each {(who, ranks, op, bytes): microseconds}; whoever of a pair goes first goes last in the next."""
    turns = []
    for turn in range(rounds):
        figures = {}
        for commands in pairs:
            for command in commands if turn % 2 == 0 else commands[::-1]:
                figures.update({(r["who"], r["ranks"], r["op"], r["bytes"]): r["us"] for r in output_of(command)})
        turns.append(figures)
    return turns


def measure(args):
    def ours(ranks):
        return [args.ours, "--ranks", str(ranks), "--most", str(args.most)] + (["--copy"] if ranks == 2 else [])

    return take_turns(args.rounds, [[ours(ranks), mpirun(args, ranks, str(args.most))] for ranks in args.ranks])


def measure_again(args, ranks, op, size):
    """Ratios of one row in short turns, which leave the machine less time to change between the two programs."""
    ours = [args.ours, "--ranks", str(ranks), "--most", str(size), "--only", op]
    turns = take_turns(AGAIN, [[ours, mpirun(args, ranks, str(size), op)]])
    return [t["mpi", ranks, op, size] / t["prun", ranks, op, size] for t in turns]


def moved_and_touched(op, ranks, size):
    """Bytes all ranks together read and write, and bytes of the buffers they do it in."""
    return {"all_reduce": (2 * ranks * size, ranks * size),
            "all_gather": (2 * (ranks - 1) * size, ranks * size),
            "reduce_scatter": ((ranks + 1) * size, (ranks + 1) * size),
            "exchange": (2 * ranks * size, 2 * ranks * size)}[op]


def copy_rate(figures, kind, touched):
    """Bytes a microsecond that two threads read and write, copying within so many bytes; NaN where not measured."""
    rates = sorted((2 * size, 2 * size / us) for (_, _, op, size), us in figures.items() if op == kind)
    if not rates or touched < rates[0][0]:
        return math.nan
    for (small, slow), (large, fast) in zip(rates, rates[1:]):
        if touched <= large:
            at = math.log(touched / small) / math.log(large / small)
            return slow ** (1 - at) * fast ** at
    return rates[-1][1]


def spread(values):
    """The narrowest interval between two of the sorted values, as far from both ends, that holds the median with 95 %."""
    n, skipped = len(values), 0
    while 2 * sum(math.comb(n, i) for i in range(skipped + 2)) <= 0.05 * 2 ** n:
        skipped += 1
    return sorted(values)[skipped], sorted(values)[n - 1 - skipped]


def judge(ratios):
    """The bar 'not slower': 'below' it only if these turns can tell, 'noisy' if they can tell too little."""
    ratio, (low, high) = statistics.median(ratios), spread(ratios)
    if ratio >= 1.0:
        return "reached"
    return "below" if high < 1.0 else "equal" if low >= 1.0 - EQUAL_WITHIN else "noisy"


def judge_row(args, what, key, ratios, failed, equal):
    verdict = judge(ratios)
    if verdict == "noisy":
        first, ratios = ratios, measure_again(args, *key[1:])
        verdict = judge(ratios)
        print("       too noisy to tell (%.2f-%.2f); again, alone, %d turns: %.2fx %.2f-%.2f" %
              (*spread(first), AGAIN, statistics.median(ratios), *spread(ratios)))
    text = "%s: %.2f times Open MPI (%.2f to %.2f)" % (what, statistics.median(ratios), *spread(ratios))
    if verdict == "equal":
        equal.append(text)
    elif verdict != "reached":
        failed.append(text + (", too noisy to tell" if verdict == "noisy" else ""))


def size_text(size):
    return "%d MiB" % (size // MIB) if size >= MIB else "%d KiB" % (size // KIB) if size >= KIB else "%d B" % size


def row(args, turns, key, failed, missed, equal):
    _, ranks, op, size = key
    peer = ("mpi", ranks, op, size)
    moved, touched = moved_and_touched(op, ranks, size)

    def middle(figure):
        return statistics.median(figure(turn) for turn in turns)

    ours, theirs, ratios = middle(lambda t: t[key]), middle(lambda t: t[peer]), [t[peer] / t[key] for t in turns]
    ratio, (low, high) = statistics.median(ratios), spread(ratios)
    update = middle(lambda t: t.get(("prun", ranks, "update", size), math.nan) / t[key]) if op == "all_reduce" else math.nan
    fetch, copy = (middle(lambda t: moved / copy_rate(t, kind, touched) / t[key]) for kind in ("fetch", "copy"))
    what = "%s of %s, %d ranks" % (op, size_text(size), ranks)
    if ranks == 2 and size >= MIB and fetch < LIMIT_BAR:
        failed.append("%s: %.0f %% of a copy" % (what, 100 * fetch))
    elif ranks == 2 and size >= MIB and fetch < LIMIT_GOAL:
        missed.append("%s: %.0f %% of a copy, goal %.0f %%" % (what, 100 * fetch, 100 * LIMIT_GOAL))
    if (ranks, op, size) == (2, "all_reduce", 64 * MIB) and ratio < LARGE_GOAL:
        missed.append("%s: %.2f times Open MPI, goal %.0f; rewriting the buffers, without communication, would have %.2f" %
                      (what, ratio, LARGE_GOAL, ratio / update))
    if (ranks, op, size) == (4, "all_reduce", 8) and ours > SMALL_GOAL:
        missed.append("%s: %.1f us, goal %.0f us" % (what, ours, SMALL_GOAL))
    percent = ["%5.0f %%" % (100 * x) if x == x else "       " for x in (fetch, copy, update)]
    print("%5d  %-14s %8s | %10.2f %10.2f | %6.2fx %6.2f-%-6.2f | %s %s %s" %
          (ranks, op, size_text(size), ours, theirs, ratio, low, high, *percent))
    if size >= RATIO_FROM.get(ranks, math.inf):
        judge_row(args, what, key, ratios, failed, equal)


def table(args, turns, others):
    failed, missed, equal = [], [], []
    print("\nCollectives of ranks on one machine, f32, microseconds (peer: Open MPI)")
    print("%5s  %-14s %8s | %10s %10s | %7s %-13s | %7s %7s %7s" %
          ("ranks", "operation", "size", "prun", "Open MPI", "ratio", "     spread", "fetch", "copy", "update"))
    for key in turns[0]:
        if key[0] == "prun" and key[2] not in ("copy", "fetch", "update"):
            row(args, turns, key, failed, missed, equal)
    print("ratio: speed of prun over Open MPI, the median of %d turns; the spread holds the true one with 95 %% (from 6 turns on)" % len(turns))
    print("fetch, copy: speed over that of two threads which copy as many bytes from the other's buffer, or from their own")
    print("update: over that of two threads which rewrite their buffers in place")
    if others > 0.1:
        print("warning: %.1f processors were kept busy by other programs; take the figures as preliminary" % others)
    for text in missed:
        print("goal missed: " + text)
    for text in equal:
        print("as fast as Open MPI, as far as this run can tell: " + text)
    for text in failed:
        print("bar missed: " + text)
    print("comm: " + ("FAILED" if failed else "every bar is reached"))
    return 1 if failed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ours", required=True)
    p.add_argument("--mpi", required=True)
    p.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4])
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--most", type=int, default=64 * MIB, help="bytes of the largest message")
    args = p.parse_args()
    start, busy = time.monotonic(), machine_busy()
    used = sum(os.times()[2:4])
    turns = measure(args)
    others = (machine_busy() - busy - (sum(os.times()[2:4]) - used)) / (time.monotonic() - start)
    return table(args, turns, others)


if __name__ == "__main__":
    sys.exit(main())
