#!/bin/bash
# cuDNN compiles plans of attention and its gradient for GPUs that are not here: at the shapes of layers of GPT-2, Llama 3 8B and 70B,
# for sm_80, sm_90 and sm_100.  And the numbers of kernels/cuda/cudnn.def are those of its headers.
cd "$TMP" || exit 2
nvcc=$(command -v nvcc) && nvcc=$(readlink -f "$nvcc") && nvcc=${nvcc%/bin/nvcc}

# The first of these folders that has a file.
folder_with() {
    local file=$1 d
    shift
    for d in "$@"; do [ -e "$d/$file" ] && { echo "$d"; return; }
    done
}
roots=(${CUDA_HOME:+"$CUDA_HOME"} ${CUDA_PATH:+"$CUDA_PATH"} ${nvcc:+"$nvcc"} /usr/local/cuda /opt/cuda /usr)
libraries=$(folder_with libcudnn.so.9 "${roots[@]/%//lib64}" "${roots[@]/%//lib}" /usr/lib/x86_64-linux-gnu)
headers=$(folder_with cudnn_graph.h "${roots[@]/%//include}" /usr/include/x86_64-linux-gnu)

# plan NAME OPTION...
plan() {
    "$RELEASE/pplan" plan "$TOP/models/$1.pmodel" -c dgx_h100 -o "$1.plan" "${@:2}" >said 2>&1 || { cat said; echo "not ok a plan of $1"; }
}

plans() {
    local m
    plan gpt2 -D drop=0 --with 'devices = [0]; microbatches = 64'
    plan llama3_8b -D batch=8 --with 'mesh tp = 8; split heads, ffn, vocab by tp; microbatches = 8'
    plan llama3_70b -D nodes=8 -D batch=8 --with 'mesh pp = 8, tp = 8; split heads, ffn, vocab by tp; microbatches = 8'
    cp "$RELEASE/preload/driver.so" libcuda.so.1
    for m in gpt2 llama3_8b llama3_70b; do
        LD_LIBRARY_PATH=$TMP:$libraries "$RELEASE/tests/slow/cudnn_plans" $m.plan $m || echo "not ok plans of cuDNN for $m: exit $?"
    done
}

if [ -n "$headers" ]; then
    if printf '#include <cudnn.h>\n#define CUDNN(name, value) _Static_assert((int)name == (value), #name);\n#include "kernels/cuda/cudnn.def"\n' |
        gcc -x c -I"$TOP" -isystem "$headers" -fsyntax-only - >said 2>&1; then
        echo "ok the numbers of cuDNN are those of its headers"
    else
        cat said
        echo "not ok the numbers of cuDNN are those of its headers"
    fi
else
    echo "skip the numbers of cuDNN: there are no headers of it (CUDA_HOME names its folder)"
fi
if [ -n "$libraries" ]; then
    plans
else
    echo "skip plans of cuDNN for sm_80, sm_90 and sm_100: there is no libcudnn.so.9 (CUDA_HOME names its folder)"
fi
