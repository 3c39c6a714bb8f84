#!/usr/bin/env python3
"""Measures training steps of prun against PyTorch, and prints the table of `make bench`.

    steps.py measure [--rows 'gpt2-64/*/1t'] [--rounds 2]
    steps.py table

A row is a model, a type and a layout: MODELS, DTYPES, LAYOUTS and WANTED below say
all there is to a row. Programs of a row take turns, a few steps each, in an order
that flips each turn; the figures are medians over all turns. `measure` keeps them in
DIR/steps.jsonl, `table` prints those and fails where a bar is missed, where a layout
has other losses than one rank, or where nothing could be compared.
"""
import argparse
import collections
import fnmatch
import json
import os
import subprocess
import sys
import time

import peer_models
from programs import Failed, Program, Prun, Torch, machine_busy, recorded

Model = collections.namedtuple("Model", (
    "title", "file", "shape",       # its sizes are peer_models.SHAPES[shape]
    "options",                      # further -D
    "pad",                          # rule that a split vocabulary needs
    "batch", "seq",
    "steps"))                       # timed, a turn

MODELS = {
    "gpt2-64": Model("GPT-2 124M", "gpt2", "gpt2", ("drop=0.0",), "pad vocab to 128; ", 4, 64, 2),
    "gpt2-256": Model("GPT-2 124M", "gpt2", "gpt2", ("drop=0.0",), "pad vocab to 128; ", 4, 256, 1),
    "llama-256": Model("Llama of 30M parameters", "llama3_1b", "llama", (), "", 4, 256, 2),
}

# Ours, and the peer's that does the same job.
DTYPES = {"f32": "f32", "bf16": "autocast"}

Layout = collections.namedtuple("Layout", (
    "title", "ranks", "threads",
    "ways",                         # {name: rules}: plans of ours, of which the fastest counts
    "script", "options"))           # of the peer

WAYS = {"dp": "mesh dp = 2; shard optimizer by dp", "tp": "mesh tp = 2; {pad}split heads, ffn, vocab, seq by tp"}
LAYOUTS = {
    "1t": Layout("1 thread", 1, 1, {"": ""}, "peer_torch.py", ()),
    "2t": Layout("2 threads", 1, 2, {"": ""}, "peer_torch.py", ()),
    "ddp": Layout("2 ranks of 1 thread", 2, 1, WAYS, "peer_ranks.py", ("--wrap", "ddp")),
    "fsdp": Layout("2 ranks of 1 thread", 2, 1, WAYS, "peer_ranks.py", ("--wrap", "fsdp")),
}
MODES = ("eager", "compile")        # of PyTorch

NAMES = [(m, d, l) for d in DTYPES for m in MODELS for l in LAYOUTS]

# How many times as fast as `against` a row must be (bar), or is hoped to be: the first line that matches counts. 'fastest': of
# the peer's modes; 'one rank': ours on one rank of one thread, against the fastest way or a certain one.
ONE_RANK = {"one rank": None, "one rank, dp": "dp", "one rank, tp": "tp"}
Wanted = collections.namedtuple("Wanted", "rows against bar goal")
WANTED = (
    Wanted("*/[12]t", "eager", 1.0, 1.3),
    Wanted("*/*", "eager", 1.0, None),
    Wanted("*/f32/[12]t", "compile", None, 1.1),
    Wanted("*/bf16/[12]t", "fastest", None, 1.2),
    Wanted("*/*dp", "fastest", None, 1.5),
    Wanted("gpt2-64/f32/ddp", "one rank, dp", 1.5, 1.7),
    Wanted("gpt2-64/f32/ddp", "one rank, tp", 1.5, 1.7),
    Wanted("*/ddp", "one rank", None, 1.7),
)

# Two layouts compute the same in another order of sums: the largest relative difference of losses, of every step.
LOSS_BAR = {"f32": 1e-5, "bf16": 1e-3}
# Other weights and tokens than the peer's, but the same kind: largest relative difference of mean losses.
KIND_BAR = 0.05
# A neighbour may keep a rank from its core for longer than a rank is given by itself.
PATIENCE = ("--timeout", "120")
MEMORY_GIB = 12                     # of the machine, for all ranks


def cluster_text(ranks, threads):
    """A machine for the planner; the rates only matter to predictions."""
    return """device cpu "this machine" {
  backend    = cpu
  threads    = %d
  memory     = %d GiB
  reserve    = 512 MiB
  bandwidth  = 25 GB/s
  peak.f32   = %d GFLOP/s
  peak.bf16  = %d GFLOP/s
  efficiency = [[0, 0.20], [1 GFLOP, 0.85]]
  launch     = 5 us
}

cluster bench "%d devices of %d threads" {
  level socket = %d * cpu { link = 6 GB/s, latency = 3 us, topology = full }
}
""" % (threads, MEMORY_GIB // ranks, 100 * threads, 200 * threads, ranks, threads, ranks)


def make_plan(args, row, way, rules, ranks, threads):
    """The path of a plan of the row's model."""
    model, dtype = MODELS[row.model], row.dtype
    shape = dict(peer_models.SHAPES[model.shape], batch=model.batch, seq=model.seq, dtype=dtype)
    if model.file == "gpt2":
        del shape["kv_heads"]       # it has no such dim
    defines = [word for pair in shape.items() for word in ("-D", "%s=%s" % pair)]
    defines += [word for option in model.options for word in ("-D", option)]
    stem = os.path.join(args.dir, "%s-%s-%dx%d%s" % (row.model, dtype, ranks, threads, way and "-" + way))
    with open(stem + ".pcluster", "w") as f:
        f.write(cluster_text(ranks, threads))
    command = [args.pplan, "plan", "models/%s.pmodel" % model.file, "-c", stem + ".pcluster", *defines, "-o", stem + ".plan"]
    if rules:
        command += ["--with", rules.format(pad=model.pad)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("steps: pplan found no plan of %s %s:\n%s" % (row.name, way, done.stderr))
    return stem + ".plan"


class Row:
    """A row and what was measured of it."""

    def __init__(self, model, dtype, layout):
        self.name, self.model, self.dtype, self.layout = "%s/%s/%s" % (model, dtype, layout), model, dtype, layout
        self.ours, self.theirs = [], {}                     # Programs; theirs by mode
        self.one = None                                     # several ranks: ours of row 1t, if that was measured
        self.cannot, self.summary = {}, None                # {mode: message}; of the faster mode
        self.others, self.rounds = 0.0, 0

    def record(self):
        """To be read back by read_rows()."""
        return dict(row=self.name, ours=[p.record() for p in self.ours], theirs={mode: p.record() for mode, p in self.theirs.items()},
                    cannot=self.cannot, summary=self.summary, others=round(self.others, 2), rounds=self.rounds)

    def fastest_of_ours(self):
        return min(self.ours, key=Program.median)

    def tokens(self):
        return MODELS[self.model].batch * MODELS[self.model].seq

    def against(self, what):
        """Times as fast; None where there is nothing to compare with."""
        if what in ONE_RANK:
            way = {program.name: program for program in self.ours}.get(ONE_RANK[what], self.fastest_of_ours())
            return self.one and self.one.median() / way.median()
        if what == "fastest":
            return min((self.against(mode) for mode in self.theirs), default=None)
        return self.theirs[what].median() / self.fastest_of_ours().median() if what in self.theirs else None


def start(args, row):
    """Fills row.ours and row.theirs with programs; a peer that cannot run is kept by its message."""
    model, layout = MODELS[row.model], LAYOUTS[row.layout]
    options = PATIENCE if layout.ranks > 1 else ()
    for way, rules in layout.ways.items():
        plan = make_plan(args, row, way, rules, layout.ranks, layout.threads)
        row.ours.append(Prun(way, args.prun, plan, options))
    for mode in MODES:
        row.theirs[mode] = Torch(mode, layout.script, (
            "--model", model.shape, "--dtype", DTYPES[row.dtype], "--batch", str(model.batch), "--seq", str(model.seq),
            "--threads", str(layout.threads), "--mode", mode, *layout.options), os.path.join(args.dir, "inductor"))
    for mode in MODES:
        try:
            row.theirs[mode].wait_until_warm()
        except Failed as failure:
            row.cannot[mode] = str(failure)
            del row.theirs[mode]


def measure(args, row):
    begin = time.monotonic()
    start(args, row)
    everybody = row.ours + list(row.theirs.values())
    turns, busy, used = time.monotonic(), machine_busy(), 0.0
    for turn in range(args.rounds):
        for program in everybody[::1 if turn % 2 == 0 else -1]:
            used += program.steps(MODELS[row.model].steps)[1]
    row.rounds = args.rounds
    row.others = max(0.0, (machine_busy() - busy - used) / (time.monotonic() - turns))
    summaries = {mode: peer.finish() for mode, peer in row.theirs.items()}
    if summaries:
        row.summary = summaries[min(row.theirs, key=lambda mode: row.theirs[mode].median())]
    print("measured %s in %.0f s, after %.0f s of planning, compiling and warming up" % (
        row.name, time.monotonic() - turns, turns - begin), flush=True)


def off_by(losses, expected):
    """The largest relative difference, of the steps that both took."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected))


def mean(numbers):
    return sum(numbers) / len(numbers)


def wanted_of(row):
    """{what a row is compared with: Wanted}"""
    found = {}
    for w in WANTED:
        if fnmatch.fnmatch(row.name, w.rows):
            found.setdefault(w.against, w)
    return found


def judge(row, failed, missed, met):
    for what, w in wanted_of(row).items():
        ratio = row.against(what)
        if ratio is None and what in ONE_RANK:
            missed.append("%s: row 1t was not measured, which it is compared with" % row.name)
            continue
        if ratio is None:
            failed.append("%s: nothing to compare with %s" % (row.name, what))
            continue
        text = "%s: %.2f times %s" % (row.name, ratio, what)
        if w.bar is not None and ratio < w.bar:
            failed.append("%s, bar %.1f" % (text, w.bar))
        if w.goal is not None:
            (met if ratio >= w.goal else missed).append("%s, goal %.1f" % (text, w.goal))
    for program in row.ours if row.one else ():
        off = off_by(program.losses, row.one.losses)
        if off > LOSS_BAR[row.dtype]:
            failed.append("%s: losses of %s differ from one rank's by %.0e, at most %.0e is right" % (
                row.name, program.name, off, LOSS_BAR[row.dtype]))
    for mode, peer in row.theirs.items():
        ours, theirs = mean(row.fastest_of_ours().losses), mean(peer.losses)
        if abs(ours - theirs) > KIND_BAR * theirs:
            failed.append("%s: the mean loss is %.3f, that of %s %.3f: they do not train the same" % (row.name, ours, mode, theirs))


def print_peers(rows):
    """Versions and settings, once where rows agree."""
    shown = set()
    for row in rows:
        s = row.summary
        if s is None:
            continue
        text = "%s: %s; %s" % (LAYOUTS[row.layout].script, ", ".join("%s %s" % (k, s[k]) for k in (
            "attention", "head", "optimizer", "allocator", "wrap", "bucket_mb") if s.get(k) is not None),
            " ".join("%s=%s" % kv for kv in sorted(s["environment"].items())))
        if not shown:
            print("peer: PyTorch %s (%s)" % (s["version"], "; ".join(s["libraries"])))
        if text not in shown:
            print("      " + text)
        shown.add(text)


def figures(row, program):
    return "%8.1f %6.0f" % (row.tokens() / program.median(), program.pss_mb)


def step_table(rows):
    print("\n%-20s | %15s %3s | %15s %6s | %15s %6s | %7s | %6s" % (
        "", "prun", "", "eager", "", "compiled", "", "fastest", ""))
    print("%-20s | %8s %6s %3s | %8s %6s %6s | %8s %6s %6s | %7s | %6s" % (
        "row", "tokens/s", "MB", "way", "tokens/s", "MB", "ratio", "tokens/s", "MB", "ratio", "ratio", "others"))
    for row in rows:
        cells = ["%-20s" % row.name, "%s %3s" % (figures(row, row.fastest_of_ours()), row.fastest_of_ours().name)]
        for mode in MODES:
            cells.append("%s %5.2fx" % (figures(row, row.theirs[mode]), row.against(mode)) if mode in row.theirs else "%-22s" % "cannot run")
        fastest = row.against("fastest")
        print(" | ".join(cells + ["%6.2fx" % fastest if fastest else "%7s" % "", "%6.2f" % row.others]))
    for row in rows:
        for mode, text in row.cannot.items():
            print("%s: PyTorch %s cannot run: %s" % (row.name, mode, text))
    print("ratio: speed of prun over the peer's. MB: Pss of all processes after their steps. way: the plan that was fastest.")
    print("others: processors kept busy by other programs")


def ranks_table(rows):
    """Each way of each row of ranks, against one rank."""
    if not rows:
        return
    print("\n%-20s %-3s | %8s %6s | %8s | %s" % ("two ranks", "way", "tokens/s", "MB", "one rank", "losses"))
    for row in rows:
        for program in row.ours:
            print("%-20s %-3s | %s | %7.2fx | %.0e" % (row.name, program.name, figures(row, program),
                                                   row.one.median() / program.median(), off_by(program.losses, row.one.losses)))
    print("one rank: speed over that of row 1t. losses: largest relative difference from its, over all steps of a start")


def verdict(rows):
    failed, missed, met = [], [], []
    for row in rows:
        judge(row, failed, missed, met)
    print()
    if any(row.others > 0.1 for row in rows):
        print("warning: other programs were running; take the figures as preliminary")
    for kind, lines in (("goal met", met), ("goal missed", missed), ("bar missed", failed)):
        for line in lines:
            print("%s: %s" % (kind, line))
    print("steps: " + ("FAILED" if failed else "every bar is reached") + ", %d of %d goals" % (len(met), len(met) + len(missed)))
    return 1 if failed else 0


def read_rows(path):
    """{name: Row} of a file that write_rows() made; none where there is none."""
    rows = {}
    if os.path.exists(path):
        with open(path) as f:
            for fields in map(json.loads, f):
                row = rows[fields["row"]] = Row(*fields["row"].split("/"))
                row.ours = [recorded(p) for p in fields["ours"]]
                row.theirs = {mode: recorded(p) for mode, p in fields["theirs"].items()}
                row.cannot, row.summary, row.others, row.rounds = (fields[k] for k in ("cannot", "summary", "others", "rounds"))
    for row in rows.values():
        single = "/".join((row.model, row.dtype, "1t"))
        if LAYOUTS[row.layout].ranks > 1 and single in rows:
            row.one = rows[single].ours[0]
    return rows


def write_rows(path, rows):
    with open(path, "w") as f:
        for row in rows.values():
            f.write(json.dumps(row.record()) + "\n")


def measure_rows(args, path):
    """Measures what --rows selects; what else the file has stays."""
    known, chosen = read_rows(path), [n for n in NAMES if any(fnmatch.fnmatch("/".join(n), pattern) for pattern in args.rows.split())]
    if not chosen:
        sys.exit("steps: no row matches '%s'; the first is %s, the last %s" % (args.rows, "/".join(NAMES[0]), "/".join(NAMES[-1])))
    for name in chosen:
        row = Row(*name)
        try:
            measure(args, row)
        except Failed as failure:
            sys.exit("steps: %s: %s" % (row.name, failure))
        known[row.name] = row
        write_rows(path, known)


def table(path):
    known = read_rows(path)
    rows = [known["/".join(n)] for n in NAMES if "/".join(n) in known]
    if not rows:
        sys.exit("steps: %s has no row: measure first" % path)
    print("\nTraining steps, median of %d turns; %s" % (min(row.rounds for row in rows), "; ".join(
        "%s: %s, batch %d, seq %d, steps a turn %d" % (name, m.title, m.batch, m.seq, m.steps) for name, m in MODELS.items())))
    print_peers(rows)
    step_table(rows)
    ranks_table([row for row in rows if row.one])
    return verdict(rows)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=("measure", "table"))
    p.add_argument("--pplan", default="build/release/pplan")
    p.add_argument("--prun", default="build/release/prun")
    p.add_argument("--dir", default="build/bench", help="for plans and results")
    p.add_argument("--rows", default="*", help="patterns of rows, such as 'gpt2-64/*/1t llama-256/f32/*'")
    p.add_argument("--rounds", type=int, default=2, help="turns")
    args = p.parse_args()
    path = os.path.join(args.dir, "steps.jsonl")
    if args.what == "table":
        return table(path)
    os.makedirs(args.dir, exist_ok=True)
    return measure_rows(args, path)


if __name__ == "__main__":
    sys.exit(main())
