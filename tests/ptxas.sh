#!/bin/bash
# The CUDA kernels by nvcc, for one architecture: they compile without a warning, no kernel spills registers, and none needs
# more of them than leave room for two blocks of its size on a multiprocessor.
cd "$TOP" || exit 2
budget=128

# compile FILE: what nvcc and ptxas say, in $TMP.
compile() {
    local name=${1##*/}
    nvcc -std=c++17 -I. -D_GNU_SOURCE -arch=sm_90 -O3 -Xptxas -v -c "$1" -o "$TMP/$name.o" >"$TMP/$name.log" 2>&1 || echo "$1 does not compile"
    grep -E 'warning|error' "$TMP/$name.log"
}

# KERNEL REGISTERS SPILLED for each kernel.
kernels() {
    sed -nE "s/.*Compiling entry function '([^']*)'.*/kernel \1/p; s/.* ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads.*/spills \1 \2/p
        s/.*Used ([0-9]+) registers.*/used \1/p" "$TMP"/*.log |
        awk '$1 == "kernel" { name = $2; spilled = 0 } $1 == "spills" { spilled += $2 + $3 } $1 == "used" { print name, $2, spilled }'
}

# verdict NAME PROBLEMS: it passes when the text of problems is empty.
verdict() {
    if [ -z "$2" ]; then echo "ok $1"; else printf '%s\n' "$2"; echo "not ok $1"; fi
}

if nvcc --version >/dev/null 2>&1; then
    verdict "the CUDA kernels compile" "$(for f in kernels/cuda/*.cu; do compile "$f"; done)"
    verdict "ptxas names every kernel" "$(kernels | awk -v want="$(cat kernels/cuda/*.cu | grep -c '^static __global__')" 'END { if (NR != want) print NR " of " want }')"
    verdict "no kernel spills registers" "$(kernels | awk '$3 > 0 { print $1, "spills", $3, "bytes" }')"
    verdict "no kernel uses more than $budget registers" "$(kernels | awk -v most=$budget '$2 > most { print $1, "uses", $2 }')"
else
    echo "skip the CUDA kernels compile: no nvcc is on the path"
fi
