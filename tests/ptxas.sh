#!/bin/bash
# What nvcc said of the CUDA kernels when they were compiled: it had no warning, no kernel spills registers, and none needs more of
# them than leave room for two blocks of its size on a multiprocessor; for each architecture that was built.
cd "$TOP" || exit 2
said=build/cuda/obj/kernels/cuda

# KERNEL REGISTERS SPILLED for each kernel of an architecture; the name is mangled.
kernels() {
    sed -nE "s/.*Compiling entry function '([^']*)' for '([^']*)'.*/kernel \1 \2/p; s/.* ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads.*/spills \1 \2/p
        s/.*Used ([0-9]+) registers.*/used \1/p" $said/*.ptxas |
        awk -v arch="$1" '$1 == "kernel" { name = $2; wanted = $3 == arch; spilled = 0 } $1 == "spills" { spilled += $2 + $3 }
            $1 == "used" && wanted { print name, $2, spilled }'
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

# Kernels whose objects have nothing beside them.
silent() {
    local f
    for f in kernels/cuda/*.cu; do
        f=${f##*/}
        [ -s "$said/${f%.cu}.ptxas" ] || echo "nothing was said of $f"
    done
}

if [ ! -f build/release/libprun_cuda.so ]; then
    echo "skip the CUDA kernels by nvcc: the plug-in for GPUs was not built"
    exit 0
fi
verdict "the CUDA kernels compile without a warning" "$(silent; grep -hE 'warning|error' $said/*.ptxas)"
for n in $(cat build/cuda/archs); do
    arch=sm_$n
    verdict "ptxas names every kernel for $arch" "$(budgets | grep -q . || echo "no kernel was found"; judge "$arch" 'n == 0' '"is not named"')"
    verdict "no kernel spills registers for $arch" "$(judge "$arch" 'spilled > 0' '"spills " spilled " bytes"')"
    verdict "no kernel uses more registers than its budget for $arch" "$(judge "$arch" 'most > $2' '"uses " most " of " $2')"
done
