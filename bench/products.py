#!/usr/bin/env python3
"""Prints the tables of matrix products of `make bench`, from what peer_gemm wrote: products.py gemm.jsonl ...

Fails where our product is below its bar.
"""
import json
import sys

BAR = 0.85                          # of the fastest installed one, on every shape
# How often a step of GPT-2 124M does each product: q, k, v and out are alike; 12 layers, one head.
PER_STEP = {"attn": 4 * 12, "mlp": 12, "head": 1}


def table(path):
    """True when our product reaches the bar against the fastest installed one on every shape."""
    with open(path) as f:
        records = [json.loads(line) for line in f]
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
        good &= ratio >= BAR
        print("%-17s %-2s %18s | %7.1f | %-11s %7.1f  %3.0f %%%s" % (
            role, op, "%d x %d x %d" % (m, n, k), rate["prun"], fastest, rate[fastest], 100 * ratio,
            "" if ratio >= BAR else "  below %.0f %%" % (100 * BAR)))
        work = 2e-9 * m * n * k * PER_STEP[role.split(".")[0].split(" ")[0]]
        ours, best = ours + work / rate["prun"], best + work / rate[fastest]
    print("all products of a step at these rates: %.3f s, at the fastest of each shape %.3f s: %.0f %%" % (
        ours, best, 100 * best / ours))
    return good


def main():
    good = all([table(path) for path in sys.argv[1:]])
    print("\nproducts: " + ("every bar is reached" if good else "FAILED: below %.0f %% of the fastest" % (100 * BAR)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
