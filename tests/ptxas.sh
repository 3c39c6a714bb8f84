#!/bin/bash
# The CUDA kernels by nvcc, for one architecture, or those named in ARCHS: they compile without a warning, no kernel spills
# registers, and none needs more of them than leave room for two blocks of its size on a multiprocessor.
cd "$TOP" || exit 2

# compile ARCH FILE: what nvcc and ptxas say, in $TMP.
compile() {
    local name=${2##*/}
    nvcc -std=c++17 -I. -D_GNU_SOURCE -arch="$1" -O3 -Xptxas -v -c "$2" -o "$TMP/$name.o" >"$TMP/$1.$name.log" 2>&1 || echo "$2 does not compile"
    grep -E 'warning|error' "$TMP/$1.$name.log"
}

# KERNEL REGISTERS SPILLED for each kernel of an architecture; the name is mangled.
kernels() {
    sed -nE "s/.*Compiling entry function '([^']*)'.*/kernel \1/p; s/.* ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads.*/spills \1 \2/p
        s/.*Used ([0-9]+) registers.*/used \1/p" "$TMP/$1".*.log |
        awk '$1 == "kernel" { name = $2; spilled = 0 } $1 == "spills" { spilled += $2 + $3 } $1 == "used" { print name, $2, spilled }'
}

# NAME BUDGET for each kernel in the sources: of 65536 registers, half for a block of 256 threads or of four warps.
budgets() {
    sed -nE 's/.*__global__ void (__launch_bounds__\(([^)]*)\) )?([a-z_]+)\(.*/\3 \2/p' kernels/cuda/*.cu |
        awk '{ print $1, /WARPS \* WARP/ ? 255 : 128 }'
}

# judge ARCH CONDITION TEXT: TEXT, of awk, for each kernel in the sources for which CONDITION holds; n is how many ptxas made
# of it, most and spilled are the worst of those.
judge() {
    awk "NR == FNR { used[\$1] = \$2; spills[\$1] = \$3; next }
        { n = 0; most = 0; spilled = 0
          for (k in used) if (index(k, length(\$1) \$1)) { n++; if (used[k] > most) most = used[k]; if (spills[k] > spilled) spilled = spills[k] } }
        $2 { print \$1, $3 }" <(kernels "$1") <(budgets)
}

# verdict NAME PROBLEMS: it passes when the text of problems is empty.
verdict() {
    if [ -z "$2" ]; then echo "ok $1"; else printf '%s\n' "$2"; echo "not ok $1"; fi
}

for arch in ${ARCHS:-sm_90}; do
    if ! nvcc --version >/dev/null 2>&1; then
        echo "skip the CUDA kernels compile for $arch: no nvcc is on the path"
        continue
    fi
    verdict "the CUDA kernels compile for $arch" "$(for f in kernels/cuda/*.cu; do compile "$arch" "$f"; done)"
    verdict "ptxas names every kernel for $arch" "$(budgets | grep -q . || echo "no kernel was found"; judge "$arch" 'n == 0' '"is not named"')"
    verdict "no kernel spills registers for $arch" "$(judge "$arch" 'spilled > 0' '"spills " spilled " bytes"')"
    verdict "no kernel uses more registers than its budget for $arch" "$(judge "$arch" 'most > $2' '"uses " most " of " $2')"
done
