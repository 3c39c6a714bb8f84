"""The two programs that `make bench` compares, a few steps at a time: prun and a PyTorch peer.

Both have a `name` and steps(count), which gives the wall seconds of each step and
the processor seconds of all, and keep what they saw: seconds, losses, pss_mb.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from peer_torch import pss_mb

HERE = os.path.dirname(os.path.abspath(__file__))


class Failed(Exception):
    """A program ended before its steps were done; the text is its own."""


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        found = [int(word) for word in f.read().split()]
    return found + [pid_of for child in found for pid_of in children(child)]


def last_line(file):
    file.seek(0)
    lines = [line.strip() for line in file.read().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


class Program:
    """What both keep: seconds of the wall of all timed steps, MB at the largest (Pss, of all processes), losses of the last turn."""

    def __init__(self, name):
        self.name, self.seconds, self.losses, self.pss_mb = name, [], [], 0.0

    def median(self):
        return statistics.median(self.seconds)

    def record(self):
        """To be read back by recorded()."""
        return dict(name=self.name, seconds=self.seconds, losses=self.losses, pss_mb=self.pss_mb)


def recorded(fields):
    program = Program(fields["name"])
    vars(program).update(fields)
    return program


class Prun(Program):
    """Starts anew for each turn; the first two steps of a start do not count: a rank still touches memory in the second."""
    warmup = 2

    def __init__(self, name, prun, plan, options=()):
        super().__init__(name)
        self.command = [prun, plan, "--data", "random", "--log", "-", *options]

    def steps(self, count):
        with tempfile.TemporaryFile("w+") as errors:
            p = subprocess.Popen(self.command + ["--steps", str(self.warmup + count)], stdout=subprocess.PIPE, stderr=errors, text=True)
            records = []
            for line in p.stdout:
                record = json.loads(line)
                if "step" not in record or "seconds" not in record:
                    continue
                # All memory was touched by then.
                if not records:
                    self.pss_mb = max(self.pss_mb, pss_mb([p.pid] + children(p.pid)))
                records.append(record)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            if p.returncode != 0 or len(records) != self.warmup + count:
                raise Failed("prun ended with status %d after %d steps: %s" % (p.returncode, len(records), last_line(errors)))
        seconds = [r["seconds"] for r in records][self.warmup:]
        self.seconds += seconds
        self.losses = [r["loss"] for r in records]
        return seconds, usage.ru_utime + usage.ru_stime


class Torch(Program):
    """A process of `script` (peer_torch.py, or one that takes its options) that runs a step for each line it is sent,
    once it is warm; several get warm at the same time."""

    def __init__(self, name, script, options, cache):
        super().__init__(name)
        self.errors = tempfile.TemporaryFile("w+")
        # What was compiled once need not be the next time: only the start is faster.
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, script), "--serve", *options], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1)

    def wait_until_warm(self):
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise Failed(last_line(self.errors))
        return json.loads(line)

    def steps(self, count):
        records = []
        for _ in range(count):
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
            records.append(self.read())
        seconds = [r["seconds"] for r in records]
        self.seconds += seconds
        self.losses += [r["loss"] for r in records]
        return seconds, sum(r["cpu_seconds"] for r in records)

    def finish(self):
        """The summary of the process, which ends."""
        self.process.stdin.close()
        summary = self.read()
        self.process.wait()
        self.errors.close()
        self.pss_mb = summary["pss_mb"]
        return summary


def machine_busy():
    """Processor seconds used by anybody since the machine started: user, nice, system, irq, softirq, steal."""
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:]]
    return (sum(fields[0:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")
