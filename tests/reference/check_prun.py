#!/usr/bin/env python3
"""Runs tiny_gpt2 and tiny_llama in f64 and compares with the reference files. Needs nothing but Python.

    check_prun.py PPLAN PRUN FOLDER      writes its files into FOLDER; exit status 1 when a number differs

The data are the samples of one batch, so that the order in which prun visits
them cannot matter: the `repeated` records apply.
"""
import json
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LOSS, GRADIENT, WEIGHT = 1e-12, 1e-10, 1e-9       # relative; in parts of the tensor's norm; of the weight's norm


def read_reference(path):
    """[(record, {key: value})] without comments"""
    with open(path) as f:
        lines = [line.split() for line in f if not line.startswith("#")]
    return [(words[0], dict(w.split("=", 1) for w in words[1:])) for words in lines]


def numbers(text):
    return [float(x) for x in text.split(",")]


def norm(values):
    return sum(x * x for x in values) ** 0.5


def read_safetensors(path):
    """{name: list of numbers}; f64 only"""
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "F64", (name, t["dtype"])
            begin, end = t["data_offsets"]
            out[name] = struct.unpack("<%dd" % ((end - begin) // 8), body[begin:end])
    return out


class Report:
    def __init__(self, model):
        self.model, self.worst, self.failures = model, {}, []

    def compare(self, kind, what, error, allowed):
        self.worst[kind] = max(self.worst.get(kind, 0.0), error)
        if not error <= allowed:
            self.failures.append("%s %s: off by %.3g, allowed %.3g" % (kind, what, error, allowed))

    def finish(self):
        for line in self.failures[:10]:
            print("%s: %s" % (self.model, line))
        print("%s: %s; worst %s" % (self.model, "FAILED" if self.failures else "equal",
                                    ", ".join("%s %.1e" % kv for kv in self.worst.items())))
        return not self.failures


def run(pplan, prun, folder, model, reference):
    header = dict(reference)                       # the last record of each name is enough here
    shape, steps = header["model"], header["train"]["steps"]
    count = int(shape["batch"]) * int(shape["seq"]) + 1
    tokens = [int(t) for t in header["tokens"]["values"].split(",")[:count]]
    files = {name: os.path.join(folder, model + "." + name) for name in ("bin", "plan", "log", "grads", "start", "end")}
    with open(files["bin"], "wb") as f:
        f.write(struct.pack("<%dH" % count, *tokens))
    if os.path.exists(files["log"]):
        os.remove(files["log"])
    subprocess.run([pplan, "plan", os.path.join(HERE, model + ".pmodel"), "-c", "laptop1", "-o", files["plan"]],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run([prun, files["plan"], "--data", files["bin"], "--steps", steps, "--seed", header["train"]["seed"],
                    "--log", files["log"], "--dump", "weights@0=" + files["start"], "--dump", "grads@1=" + files["grads"],
                    "--dump", "weights@%s=%s" % (steps, files["end"])], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return files


def compare_weights(report, record, reference, tensors, step):
    for name, want in reference:
        if name != record or want["step"] != step or want.get("vanishes") == "1":
            continue
        got, size = tensors.get(want["path"]), float(want["norm"])
        if got is None:
            report.compare(record, want["path"] + " is missing", float("inf"), 0.0)
            continue
        first = max(abs(a - b) for a, b in zip(got, numbers(want["first"])))
        report.compare("weights@" + step, want["path"], max(first, abs(norm(got) - size)) / max(size, 1e-3), WEIGHT)


def compare_gradients(report, reference, tensors):
    total = norm([float(f["norm"]) for name, f in reference if name == "grad"])
    for name, want in reference:
        if name != "grad":
            continue
        got, values = tensors.get(want["path"]), numbers(want["values"])
        if got is None or len(got) != len(values):
            report.compare("gradients", want["path"] + " is missing or of another size", float("inf"), 0.0)
            continue
        scale = total if want["vanishes"] == "1" else float(want["norm"])
        report.compare("gradients", want["path"], norm([a - b for a, b in zip(got, values)]) / scale, GRADIENT)


def check(pplan, prun, folder, model):
    reference, report = read_reference(os.path.join(HERE, model + ".txt")), Report(model)
    files = run(pplan, prun, folder, model, reference)
    with open(files["log"]) as f:
        log = {r["step"]: r for r in map(json.loads, f) if "loss" in r}
    for name, want in reference:
        if name == "repeated":
            got = log.get(int(want["step"]), {"loss": float("nan"), "grad_norm": float("nan")})
            for ours, theirs in (("loss", "loss"), ("grad_norm", "norm")):
                value = float(want[theirs])
                report.compare(ours, "step " + want["step"], abs(got[ours] - value) / value, LOSS if ours == "loss" else GRADIENT)
    compare_gradients(report, reference, read_safetensors(files["grads"]))
    compare_weights(report, "weight", reference, read_safetensors(files["start"]), "0")
    compare_weights(report, "repeated_weight", reference, read_safetensors(files["end"]), "10")
    return report.finish()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    pplan, prun, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    good = [check(pplan, prun, folder, model) for model in ("tiny_gpt2", "tiny_llama")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
