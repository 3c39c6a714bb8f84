#!/bin/bash
# headers.sh [FOLDER...] -- where NVIDIA's headers are, as options for a compiler: 'found: OPTIONS'; or 'absent: WHY'.
#
# Looks at CUDA_HOME, CUDA_PATH, the nvcc on PATH, and the usual places, or the folders given instead of them.  NCCL may
# lie elsewhere: in NCCL_HOME or the last of the places.
[ $# -gt 0 ] || set -- /usr/local/cuda/include /opt/cuda/include /usr/lib/cuda/include /usr/include
nvcc=$(command -v nvcc 2>/dev/null) && nvcc=$(readlink -f "$nvcc") && nvcc=${nvcc%/bin/nvcc}
wanted="cuda_runtime_api.h cuda_bf16.h cuda_fp16.h cublas_v2.h cublasLt.h"

# has FOLDER FILE...: all files are there.
has() {
    local folder=$1 f
    shift
    for f in "$@"; do [ -f "$folder/$f" ] || return 1; done
}

# number FILE MACRO: its value, 0 without.
number() { sed -nE "s/^#define $2 +([0-9]+).*/\1/p" "$1" | head -n 1 | grep . || echo 0; }

cuda=
for folder in ${CUDA_HOME:+"$CUDA_HOME/include"} ${CUDA_PATH:+"$CUDA_PATH/include"} ${nvcc:+"$nvcc/include"} "$@"; do
    has "$folder" $wanted && { cuda=$folder; break; }
done
[ -n "$cuda" ] || { echo "absent: no folder has the CUDA headers $wanted (CUDA_HOME names one)"; exit; }
[ "$(number "$cuda/cuda_runtime_api.h" CUDART_VERSION)" -ge 13000 ] || { echo "absent: the headers in $cuda are of a CUDA before 13.0"; exit; }

nccl=
for folder in "$cuda" ${NCCL_HOME:+"$NCCL_HOME/include"} "${@: -1}"; do
    has "$folder" nccl.h && { nccl=$folder; break; }
done
[ -n "$nccl" ] || { echo "absent: no nccl.h (NCCL_HOME names its folder)"; exit; }
[ "$(number "$nccl/nccl.h" NCCL_VERSION_CODE)" -ge 22800 ] ||
    { echo "absent: $nccl/nccl.h is of an NCCL before 2.28"; exit; }

options="-isystem $cuda"
[ "$nccl" = "$cuda" ] || [ "$nccl" = /usr/include ] || options+=" -isystem $nccl"
[ "$cuda" = /usr/include ] && options=
echo "found: $options"
