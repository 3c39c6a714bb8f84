#!/usr/bin/env python3
"""Predicts the step times of the plans in predicted.txt on this machine, measures them, and prints the table.

    predicted.py                          all of it: `make predicted`
    predicted.py --parts calibrate        or one part after the other, with what earlier ones left in the folder:
    predicted.py --parts plans,measure --models gpt,llama
    predicted.py --parts table --half a

Four virtual devices of one thread share the machine's cores. Plans of a model take turns, a few
steps each, in several passes, so that a busy moment meets all of them; a plan's time is
the median of its steps. Fails below a bar.
"""
import argparse
import array
import json
import os
import random
import re
import statistics
import struct
import subprocess
import sys
import time

from programs import machine_busy

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST_PLANS = 60
SAMPLES = 2048                      # in a file
APART = 0.05                        # pairs whose medians differ by less have no order
TAU_BAR, TAU_GOAL = 0.8, 0.9        # over the other pairs
ERROR_BAR, ERROR_GOAL = 0.20, 0.12  # median of |predicted / measured - 1|
PARTS = ("calibrate", "plans", "measure", "table")
TURN_SECONDS, LEAST_STEPS, MOST_STEPS = 0.6, 6, 40   # of one plan's turn, by its predicted step
WARMUP = 3                          # steps of a turn that do not count
PATIENCE = ("--timeout", "120")     # as in ranks.py
UNITS = {"s": 1e3, "ms": 1, "us": 1e-3}


def fail(text):
    sys.exit("predicted: " + text)


class Column:
    """Samples of one input, in a file: making numbers up in each step, as `--data random` does, takes longer than reading them."""

    def __init__(self, args, text):
        self.name, self.dtype, number = text.split(":")
        self.number = int(number)   # of a sample, F32; below which an I32 is
        self.path = os.path.join(args.dir, "%s.%s.%s.safetensors" % (self.name, self.dtype, number))

    def spec(self):
        return "%s=%s" % (self.name, self.path)

    def write(self):
        rng = random.Random(1)
        if self.dtype == "F32":
            shape, values = [SAMPLES, self.number], array.array("f", (rng.random() for _ in range(SAMPLES * self.number)))
        else:
            shape, values = [SAMPLES], array.array("i", (rng.randrange(self.number) for _ in range(SAMPLES)))
        tensor = {"dtype": self.dtype, "shape": shape, "data_offsets": [0, 4 * len(values)]}
        head = json.dumps({self.name: tensor}).encode()
        head += b" " * (-len(head) % 8)
        with open(self.path, "wb") as f:
            f.write(struct.pack("<Q", len(head)) + head + values.tobytes())


class Plan:
    """One line of predicted.txt."""

    def __init__(self, args, model, file, params, number, half, rules):
        self.columns = [Column(args, p) for p in params if ":" in p]
        params = [p for p in params if ":" not in p]
        self.name, self.model, self.half, self.rules = "%s.%d" % (model, number), model, half, rules
        self.source = file
        self.searched = rules == "found"
        self.options = [w for p in params for w in ("-D", p)] + ["-D", "devices=4"]
        self.path = os.path.join(args.dir, self.name + (".plan" if self.searched else ".pplan"))

    def data(self):
        return [c.spec() for c in self.columns] or ["random"]

    def run_options(self):
        """A .plan has its parameters in itself."""
        return [] if self.searched else self.options


def read_plans(args):
    plans, model = [], None
    with open(args.plans) as f:
        lines = [line.split("#")[0].split(None, 1) for line in f]
    for words in filter(None, lines):
        if words[0] == "model":
            model, *rest = words[1].split()
            numbers = 0
        elif words[0] in "ab" and model:
            numbers += 1
            plans.append(Plan(args, model, rest[0], rest[1:], numbers, words[0], words[1].strip()))
        else:
            fail("'%s' in %s is neither a model nor a half" % (words[0], args.plans))
    wanted = args.models.split(",") if args.models else [p.model for p in plans]
    return [p for p in plans if p.model in wanted and args.half in ("", p.half)]


def output(command):
    """What a command prints; its messages where it fails."""
    p = subprocess.run(command, capture_output=True, text=True, check=False)
    if p.returncode != 0:
        fail("%s failed with status %d:\n%s" % (" ".join(command), p.returncode, p.stderr))
    return p.stdout


def model_name(source):
    return os.path.basename(source).removesuffix(".pmodel")


def write_plans(args, plans):
    for p in plans:
        for column in p.columns:
            if not os.path.exists(column.path):
                column.write()
        if p.searched:
            output([args.pplan, "plan", p.source, "-c", args.cluster + ":crowd", *p.options, "-o", p.path])
        else:
            with open(p.path, "w") as f:
                f.write('include "%s"\nplan %s on crowd { %s }\n' % (p.source, model_name(p.source), p.rules))


def predict(args, p):
    """{part: milliseconds} of the busiest stage, the step among them."""
    told = json.loads(output([args.pplan, "estimate", p.path, "-c", args.cluster + ":crowd", *p.run_options(), "--json"]))
    stage = max(told["time"], key=lambda s: s["step"] - s.get("bubble", 0))
    return {"step": told["plan"]["step_ns"] * 1e-6, **{k: v * 1e-6 for k, v in stage.items() if k not in ("stage", "step", "update") and v > 0}}


def parts_of(said):
    """{part: (measured, predicted)} in milliseconds, of the rank that tells the times at the end of a run."""
    line = next((x for x in said.splitlines() if x.startswith("time:")), "")
    found = re.findall(r"[,;] ([a-z][^;()]*?) ([0-9.e+-]+) (s|ms|us) \(predicted ([0-9.e+-]+) (s|ms|us)\)", line)
    return {name: (float(m) * UNITS[mu], float(q) * UNITS[qu]) for name, m, mu, q, qu in found}


def steps_of(predicted):
    return max(LEAST_STEPS, min(MOST_STEPS, round(1e3 * TURN_SECONDS / predicted)))


def run_turn(args, p, steps):
    """(milliseconds of each step, its parts, processor seconds of all): the first steps find cold caches."""
    log, said = os.path.join(args.dir, "turn.jsonl"), os.path.join(args.dir, "said")
    cluster = [] if p.searched else ["-c", args.cluster + ":crowd"]
    command = [args.prun, p.path, *cluster, *p.run_options(), *(w for d in p.data() for w in ("--data", d)), "--steps", str(WARMUP + steps), "--log", log, *PATIENCE]
    with open(said, "w") as f, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=f) as run:
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    with open(said) as f:
        text = f.read()
    if run.returncode != 0:
        fail("%s failed with status %d:\n%s" % (" ".join(command), run.returncode, text))
    with open(log) as f:
        ms = [1e3 * r["seconds"] for r in map(json.loads, f) if "step" in r and "seconds" in r]
    return ms[WARMUP:], parts_of(text), usage.ru_utime + usage.ru_stime


def measure(args, plans):
    """Appends a line a turn to times.jsonl."""
    counts = {p.name: steps_of(predict(args, p)["step"]) for p in plans}
    start, busy, used = time.monotonic(), machine_busy(), 0.0
    turns = []
    for turn in range(args.passes):
        for p in plans[::1 if turn % 2 == 0 else -1]:
            ms, parts, cpu = run_turn(args, p, counts[p.name])
            used += cpu
            turns.append({"plan": p.name, "ms": ms, "parts": parts})
    others = max(0.0, (machine_busy() - busy - used) / (time.monotonic() - start))
    with open(os.path.join(args.dir, "times.jsonl"), "a") as f:
        for t in turns:
            f.write(json.dumps({**t, "others": round(others, 2)}) + "\n")


def read_times(args):
    times = {}
    with open(os.path.join(args.dir, "times.jsonl")) as f:
        for t in map(json.loads, f):
            times.setdefault(t["plan"], []).append(t)
    return times


class Row:
    """A plan with its predicted and measured times, in milliseconds."""

    def __init__(self, args, plan, turns):
        steps = sorted(s for t in turns for s in t["ms"])
        self.plan, self.turns, self.predicted = plan, turns, predict(args, plan)
        self.measured = statistics.median(steps)
        self.spread = (steps[3 * len(steps) // 4] - steps[len(steps) // 4]) / self.measured
        self.step = self.predicted["step"]
        self.error = self.step / self.measured - 1


def tau(rows):
    """(Kendall's, over the pairs whose measured medians are apart; how many they are)"""
    score = pairs = 0
    for i, a in enumerate(rows):
        for b in rows[:i]:
            if max(a.measured, b.measured) > (1 + APART) * min(a.measured, b.measured):
                pairs += 1
                score += 1 if (a.measured - b.measured) * (a.step - b.step) > 0 else -1
    return (score / pairs if pairs else 1.0), pairs


def errors(rows):
    return statistics.median(abs(r.error) for r in rows), statistics.mean(abs(r.error) for r in rows)


def print_row(r):
    print("%-12s %s | %8.1f %8.1f %+6.0f %% %5.0f %% | %s" % (
        r.plan.name, r.plan.half, r.step, r.measured, 100 * r.error, 100 * r.spread, r.plan.rules))


def print_parts(r):
    """Where the time went; measured is of one rank in its last turn, in which it may have waited for a core in any part."""
    print("%s: %.1f ms predicted, %.1f ms measured: %s" % (r.plan.name, r.step, r.measured, r.plan.rules))
    for name, (m, q) in r.turns[-1]["parts"].items():
        print("    %-28s %8.2f predicted %8.2f measured" % (name, q, m))


def print_summary(what, rows):
    t, pairs = tau(rows)
    median, mean = errors(rows)
    print("%-24s %3d plans: tau %5.3f over %4d pairs, error: median %4.1f %%, mean %4.1f %%" % (what, len(rows), t, pairs, 100 * median, 100 * mean))


def table(args, plans):
    times = read_times(args)
    rows = [Row(args, p, times[p.name]) for p in plans if p.name in times]
    if not rows:
        fail("nothing was measured")
    print("%-14s | %8s %8s %8s %7s | rules" % ("plan, half", "predicted", "ms", "error", "spread"))
    for r in rows:
        print_row(r)
    print("\nthe worst five, by parts of the rank that has the loss, milliseconds a step")
    for r in sorted(rows, key=lambda r: -abs(r.error))[:5]:
        print_parts(r)
    print()
    for model in dict.fromkeys(p.model for p in plans):
        print_summary(model, [r for r in rows if r.plan.model == model])
    for half, name in (("a", "half a, developed on"), ("b", "half b, held out")):
        if any(r.plan.half == half for r in rows):
            print_summary(name, [r for r in rows if r.plan.half == half])
    print_summary("all", rows)
    return verdict(args, rows)


def verdict(args, rows):
    t, _ = tau(rows)
    median, _ = errors(rows)
    others = max(turn["others"] for r in rows for turn in r.turns)
    if others > 0.1:
        print("warning: %.1f processors were kept busy by other programs; take the figures as preliminary" % others)
    if t < TAU_GOAL:
        print("goal missed: tau %.3f, goal %.1f" % (t, TAU_GOAL))
    if median > ERROR_GOAL:
        print("goal missed: median error %.1f %%, goal %.0f %%" % (100 * median, 100 * ERROR_GOAL))
    bad = ["tau %.3f, at least %.1f" % (t, TAU_BAR)] if t < TAU_BAR else []
    bad += ["median error %.1f %%, at most %.0f %%" % (100 * median, 100 * ERROR_BAR)] if median > ERROR_BAR else []
    if len(rows) < LEAST_PLANS and not args.models and not args.half:
        bad.append("%d plans, at least %d" % (len(rows), LEAST_PLANS))
    for text in bad:
        print("bar missed: " + text)
    print("predicted: " + ("FAILED" if bad else "every bar is reached"))
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--pplan", default="build/release/pplan")
    p.add_argument("--prun", default="build/release/prun")
    p.add_argument("--plans", default=os.path.join(HERE, "predicted.txt"))
    p.add_argument("--dir", default="build/predicted", help="where plans and times are kept")
    p.add_argument("--cluster", help="a calibrated .pcluster; default: this.pcluster in the folder")
    p.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    p.add_argument("--models", help="those of the file, with commas; default: all")
    p.add_argument("--half", default="", choices=("", "a", "b"))
    p.add_argument("--passes", type=int, default=3)
    args = p.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    args.cluster = args.cluster or os.path.join(args.dir, "this.pcluster")
    plans, parts = read_plans(args), args.parts.split(",")
    if "calibrate" in parts:
        output([args.prun, "calibrate", "-o", args.cluster])
    if "plans" in parts:
        write_plans(args, plans)
    if "measure" in parts:
        if "plans" in parts and os.path.exists(os.path.join(args.dir, "times.jsonl")) and not args.models:
            os.remove(os.path.join(args.dir, "times.jsonl"))
        for model in dict.fromkeys(plan.model for plan in plans):
            measure(args, [plan for plan in plans if plan.model == model])
    return table(args, plans) if "table" in parts else 0


if __name__ == "__main__":
    sys.exit(main())
