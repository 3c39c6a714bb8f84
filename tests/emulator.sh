#!/bin/bash
# Where the emulator of CUDA looks for NVIDIA's headers, with folders made up.
cd "$TMP" || exit 2
unset CUDA_HOME CUDA_PATH NCCL_HOME
PATH=/usr/bin:/bin
mkdir none
for cuda in 12080 13000; do
    mkdir -p $cuda/include
    for f in cuda_bf16.h cuda_fp16.h cublas_v2.h cublasLt.h; do : >$cuda/include/$f; done
    echo "#define CUDART_VERSION  $cuda" >$cuda/include/cuda_runtime_api.h
done
for nccl in 22703 22809; do
    mkdir -p nccl$nccl/include
    echo "#define NCCL_VERSION_CODE $nccl" >nccl$nccl/include/nccl.h
done

# expect NAME PATTERN [VARIABLE=VALUE...]: what headers.sh says.
expect() {
    local name=$1 pattern=$2 said
    shift 2
    said=$(env "$@" "$TOP/tests/cudaemu/headers.sh" "$TMP/none")
    # shellcheck disable=SC2254
    case $said in $pattern) echo "ok $name" ;; *) echo "$said"; echo "not ok $name" ;; esac
}

if nvcc --version >/dev/null 2>&1; then
    echo "skip headers that are missing: nvcc is in $PATH"
else
    expect "headers that are missing" "absent: no folder has the CUDA headers*"
    expect "an old CUDA" "absent: *before 13.0" CUDA_HOME=$TMP/12080
    expect "no NCCL" "absent: no nccl.h*" CUDA_HOME=$TMP/13000
fi
expect "an old NCCL" "absent: *before 2.28" CUDA_PATH=$TMP/13000 NCCL_HOME=$TMP/nccl22703
expect "headers in two folders" "found: -isystem $TMP/13000/include -isystem $TMP/nccl22809/include" CUDA_HOME=$TMP/13000 NCCL_HOME=$TMP/nccl22809
