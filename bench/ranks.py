#!/usr/bin/env python3
"""Measures plans of several ranks in `prun` against one rank and against PyTorch DDP, and prints the table.

    ranks.py --prun P --one one.plan --plan "dp = 2"=dp.plan --plan "tp = 2"=tp.plan --batch 4 --seq 64

All take turns, a few steps each. Plans whose names begin with the same word, such as
two of "tp", are ways to the same end: the fastest of them counts. Fails where one
that counts is below its bar, or computes other losses than one rank does.
"""
import argparse
import statistics
import sys
import time

from compare import Torch, machine_busy, print_peer, prun_steps

SCALE_BAR, SCALE_GOAL = 1.5, 1.7    # times the speed of one rank with one thread
DDP_GOAL = 2.0                      # times the speed of DDP
LOSS_BAR = 1e-5                     # relative difference from one rank's, of every step
ONE = "one rank"
# A neighbour may keep a rank from its core for longer than a rank is given by itself.
PATIENCE = ("--timeout", "120")


def parse_plan(text):
    name, _, path = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError("'%s' is not NAME=FILE" % text)
    return name, path


class Ours:
    """The turns of one plan."""

    def __init__(self, prun, plan, options=()):
        self.prun, self.plan, self.options = prun, plan, options
        self.seconds, self.losses, self.resident = [], [], 0.0

    def steps(self, count):
        """(wall seconds of each, processor seconds of all)"""
        turn = prun_steps(self.prun, self.plan, count, *self.options)
        self.seconds += turn.seconds
        self.losses = turn.losses
        self.resident = max(self.resident, turn.resident)
        return turn.seconds, turn.cpu


def measure(args):
    """({name: Ours}, {mode of DDP: wall seconds of each step}, {mode: its summary}, processors kept busy by others)"""
    ours = {ONE: Ours(args.prun, args.one), **{name: Ours(args.prun, plan, PATIENCE) for name, plan in args.plan}}
    peers = {mode: Torch("peer_ddp.py", args, mode) for mode in args.modes.split(",")}
    everybody, theirs, used = {**ours, **peers}, {mode: [] for mode in peers}, 0.0
    start, busy = time.monotonic(), machine_busy()
    for turn in range(args.rounds):
        for who in list(everybody)[::1 if turn % 2 == 0 else -1]:
            seconds, cpu = everybody[who].steps(args.steps)
            used += cpu
            if who in theirs:
                theirs[who] += seconds
    others = (machine_busy() - busy - used) / (time.monotonic() - start)
    return ours, theirs, {mode: peer.finish() for mode, peer in peers.items()}, max(0.0, others)


def off_by(losses, expected):
    """The largest relative difference."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


def those_that_count(medians):
    """Of the plans that are ways to the same end, the fastest."""
    best = {}
    for name in medians:
        kind = name.split()[0]
        if kind not in best or medians[name] < medians[best[kind]]:
            best[kind] = name
    return set(best.values())


def row(args, name, seconds, resident, note=""):
    print("%-34s | %8.3f %9.1f %7.0f | %s" % (name, seconds, args.batch * args.seq / seconds, resident, note))


def judge(name, scale, ddp, off, failed, missed):
    if scale < SCALE_BAR:
        failed.append("%s: %.2f times one rank, bar %.1f" % (name, scale, SCALE_BAR))
    elif scale < SCALE_GOAL:
        missed.append("%s: %.2f times one rank, goal %.1f" % (name, scale, SCALE_GOAL))
    if ddp < DDP_GOAL:
        missed.append("%s: %.2f times DDP, goal %.1f" % (name, ddp, DDP_GOAL))


def table(args, ours, theirs, summaries, others):
    medians = {name: statistics.median(o.seconds) for name, o in ours.items()}
    ddp = {mode: statistics.median(seconds) for mode, seconds in theirs.items()}
    mode = min(ddp, key=ddp.get)
    counting = those_that_count({name: s for name, s in medians.items() if name != ONE})
    failed, missed = [], []
    print("\nOne training step on 2 ranks, GPT-2 124M, f32, batch %d in all, seq %d, 1 thread a rank, median of %d steps in %d turns" % (
        args.batch, args.seq, args.rounds * args.steps, args.rounds))
    print_peer(summaries[mode], "ranks", "bucket_mb")
    print("      DDP over gloo on loopback: gradients are views of buckets, no unused parameters, static graph\n")
    print("%-34s | %8s %9s %7s | %8s %7s  %s" % ("", "step s", "tokens/s", "MB", "one rank", "DDP", "losses"))
    for name, o in ours.items():
        if name == ONE:
            row(args, name, medians[name], o.resident)
            continue
        scale, against, off = medians[ONE] / medians[name], ddp[mode] / medians[name], off_by(o.losses, ours[ONE].losses)
        row(args, name, medians[name], o.resident, "%7.2fx %6.2fx  %.0e%s" % (scale, against, off, "  counts" if name in counting else ""))
        if off > LOSS_BAR:
            failed.append("%s: losses differ from one rank's by %.0e, at most %.0e is right" % (name, off, LOSS_BAR))
        if name in counting:
            judge(name, scale, against, off, failed, missed)
    for m, seconds in ddp.items():
        row(args, "PyTorch DDP, %s" % m, seconds, summaries[m]["peak_rss_mb"], "counts" if m == mode else "")
    print("one rank, DDP: speed over theirs.  MB: of the largest process.  losses: largest relative difference from one rank's,")
    print("over %d steps.  counts: the fastest of its kind" % len(ours[ONE].losses))
    return verdict(failed, missed, others)


def verdict(failed, missed, others):
    if others > 0.1:
        print("warning: %.1f processors were kept busy by other programs; take the figures as preliminary" % others)
    for text in missed:
        print("goal missed: " + text)
    for text in failed:
        print("bar missed: " + text)
    print("ranks: " + ("FAILED" if failed else "every bar is reached"))
    return 1 if failed else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--prun", required=True)
    p.add_argument("--one", required=True, metavar="PLAN", help="of one rank")
    p.add_argument("--plan", required=True, action="append", type=parse_plan, metavar="NAME=PLAN", help="of two ranks; as often as needed")
    for name, value in (("batch", 4), ("seq", 64), ("rounds", 3), ("steps", 3)):
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--modes", default="eager,compile", help="of PyTorch; the fastest counts")
    p.set_defaults(threads=1)
    args = p.parse_args()
    return table(args, *measure(args))


if __name__ == "__main__":
    sys.exit(main())
