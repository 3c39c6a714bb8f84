#!/bin/bash
# setup_torch.sh DIR -- a Python environment in DIR with the newest PyTorch there is.
#
# Only the peer of the benchmark and the scripts that make reference numbers use
# it. PyTorch's default wheel is built for GPUs and cannot be imported without the
# libraries it links, so those are added, in the versions the wheel names; the
# rest of what it would pull in is left out. About 3 GB of downloads, 4 GB on disk.
set -eu
dir=${1:?usage: setup_torch.sh DIR}
python=$dir/bin/python

works() { [ -x "$python" ] && "$python" -c 'import numpy, torch' 2>/dev/null; }
pip() { "$python" -m pip --disable-pip-version-check install --quiet --no-cache-dir "$@"; }

fail() {
    echo "setup_torch: $1" >&2
    exit 1
}

# What the installed wheel requires and `import torch` loads: one requirement a line.
linked_libraries() {
    "$python" - <<'PY'
import re
from importlib.metadata import requires

# In these packages is nothing that is loaded on a machine without a GPU.
UNUSED = {"triton", "cuda-bindings"}
UNUSED_EXTRAS = {"cusolver", "nvtx", "curand"}
for line in requires("torch"):
    requirement = line.split(";")[0].strip()
    name = re.match(r"[\w-]+", requirement).group()
    if not re.match(r"(nvidia|cuda)-", name) or name in UNUSED:
        continue
    extras = re.search(r"\[(.*?)\]", requirement)
    if extras:
        kept = [e for e in extras.group(1).split(",") if e not in UNUSED_EXTRAS]
        requirement = requirement.replace(extras.group(1), ",".join(kept))
    print(requirement)
PY
}

works && exit 0
echo "setup_torch: installing PyTorch into $dir (some minutes)"
[ -x "$python" ] || python3 -m venv "$dir" || fail "python3 cannot make $dir (Debian package: python3-venv)"
pip --no-deps torch || fail "pip could not install torch"
pip numpy typing-extensions filelock sympy networkx jinja2 fsspec 'setuptools>=77' || fail "pip could not install what torch imports"
mapfile -t libraries < <(linked_libraries)
# pip warns that what was left out is missing: that is meant.
if [ ${#libraries[@]} -gt 0 ]; then
    pip "${libraries[@]}" 2>/dev/null || fail "pip could not install ${libraries[*]}"
fi
works || { "$python" -c 'import numpy, torch' || true; fail "torch is installed but cannot be imported"; }
"$python" -c 'import torch; print("setup_torch: PyTorch", torch.__version__)'
