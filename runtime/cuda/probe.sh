#!/bin/bash
# probe.sh FOLDER -- whether the plug-in for GPUs can be built here: 'found: NVCC LIBRARIES', with the folder of the libraries,
# or 'absent: WHY'.  A kernel is compiled and linked for it; FOLDER keeps what came of that for as long as the toolkit is the same.
headers=$("$(dirname "$0")/../../tests/cudaemu/headers.sh")
include=${headers#found: -isystem } include=${include%% *}
nvcc=
for n in ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} ${CUDA_PATH:+"$CUDA_PATH/bin/nvcc"} "$(command -v nvcc)" "$include/../bin/nvcc" /usr/local/cuda/bin/nvcc; do
    [ -x "$n" ] && { nvcc=$n; break; }
done
key="$nvcc $headers $(stat -c %Y "${nvcc:-/}" 2>/dev/null) $(stat -c %Y "$0")"
[ -f "$1/probe" ] && [ "$(sed -n 1p "$1/probe")" = "$key" ] && { sed -n 2p "$1/probe"; exit; }

mkdir -p "$1" || exit
work=$(mktemp -d) || exit
trap 'rm -rf "$work"' EXIT

# The folder that has the libraries; those of NCCL may be the system's.
libraries() {
    local d
    for d in "${nvcc%/bin/nvcc}/lib64" "${include%/include}/lib64" "${include%/include}/lib" /usr/lib/x86_64-linux-gnu; do
        [ -e "$d/libcublasLt.so" ] && { echo "$d"; return; }
    done
}

probe() {
    local lib
    case $headers in absent*) echo "$headers"; return ;; esac
    [ -n "$nvcc" ] || { echo "absent: no nvcc (CUDA_HOME names the toolkit)"; return; }
    lib=$(libraries)
    printf '#include <nccl.h>\n#include <cublasLt.h>\nstatic __global__ void one(int *x) { *x = 1; }\nextern "C" int probe(int *x) { int n; one<<<1, 1>>>(x); ncclGetVersion(&n); return n + (int)cublasLtGetVersion(); }\n' >"$work/one.cu"
    "$nvcc" ${headers#found:} -arch=sm_90 -Xcompiler -fPIC -c "$work/one.cu" -o "$work/one.o" >"$work/said" 2>&1 ||
        { echo "absent: $nvcc compiles no kernel for sm_90: $(grep -m 1 . "$work/said")"; return; }
    g++ -shared -Wl,--no-undefined -o "$work/one.so" "$work/one.o" -L"${lib:-/usr/lib}" -lcudart -lcublasLt -lnccl >"$work/said" 2>&1 ||
        { echo "absent: cudart, cublasLt or nccl cannot be linked: $(grep -m 1 . "$work/said")"; return; }
    echo "found: $nvcc $lib"
}
{ echo "$key"; probe; } >"$work/probe"
mv "$work/probe" "$1/probe"
sed -n 2p "$1/probe"
