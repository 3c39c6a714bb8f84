"""The text form of the reference files: one record a line, `key=value`, version in line 1."""
import hashlib

import numpy as np


def number(value):
    return "%.17g" % value


def numbers(values):
    return ",".join(number(v) for v in np.asarray(values, dtype=np.float64).ravel())


def integers(values):
    return ",".join(str(int(v)) for v in np.asarray(values).ravel())


def norm(values):
    a = np.asarray(values, dtype=np.float64)
    return float(np.sqrt((a * a).sum()))


class Records:
    """Lines of a file; `write` puts them down in one go."""

    def __init__(self, kind, **header):
        self.lines = []
        self.add("reference", version=1, kind=kind, **header)

    def comment(self, text):
        self.lines.append("# " + text)

    def add(self, record, **fields):
        self.lines.append(" ".join([record] + ["%s=%s" % (k, v) for k, v in fields.items()]))

    def tensor(self, record, values, **fields):
        """A record that ends with every element, row-major. A scalar has shape `-`."""
        a = np.asarray(values)
        shape = ",".join(str(n) for n in a.shape) or "-"
        text = integers(a) if a.dtype.kind in "iub" else numbers(a)
        self.add(record, **fields, shape=shape, norm=number(norm(a)), values=text)

    def write(self, path):
        text = "\n".join(self.lines) + "\n"
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        print("%s: %d lines, %d bytes, sha256 %s" % (
            path, len(self.lines), len(text), hashlib.sha256(text.encode()).hexdigest()[:16]))
