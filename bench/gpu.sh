#!/bin/bash
# What plans do on this machine's GPU, in at most eight minutes: kernels and losses against the cpu's, step times, what each
# kernel reaches, and the same steps in PyTorch, where that is installed.
#
#     bench/gpu.sh [--emulator] [PART...]         machine ops nccl losses steps graphs kernels torch; default: all
#
# A part that fails is said and the next one begins.  Each has a verdict, and its figures in $dir/PART.jsonl.  Status 1: some
# part failed; goals that are missed are only said.  With --emulator all of it runs on the emulator of CUDA, with
# tiny models: that says whether the script is right, nothing about speed.
#
#     BENCH_CLUSTER=FILE:NAME    what the GPU is (a .pcluster), instead of the bundled one of its name
#     BENCH_PYTHON=PROGRAM       a Python that has PyTorch
#     BENCH_BUILT=1              the programs are as they were built elsewhere (make gpu-bench-programs): none is built here
#     BENCH_DIR=FOLDER           for plans, logs and figures, instead of build/bench/gpu or emulator
#     BENCH_BATCH='MODEL=N ...'  other batches, on a GPU with less memory
set -u
cd "$(dirname "$0")/.." || exit 2
unset MAKEFLAGS MFLAGS MAKELEVEL     # of `make gpu-bench`

whole=480                            # seconds
bin=build/release
device=cuda programs=build/cuda dir=build/bench/gpu emulator=
if [ "${1:-}" = --emulator ]; then
    device=cudaemu programs=build/emu dir=build/bench/emulator emulator=1
    export PRUN_PLUGINS=${PRUN_PLUGINS:-$PWD/build/emu}
    shift
fi
dir=${BENCH_DIR:-$dir}
mkdir -p "$dir" || exit 2

. bench/gpu/parts.bash
. bench/gpu/speed.bash

gpu=emulator                         # its name
[ $emulator ] || { gpu=$(ask_gpu name); use_packaged; }

# PART SECONDS: what it does is a function of its name.  What one does not need, those after it have.
all_parts='machine 120
ops 50
nccl 15
losses 25
steps 110
graphs 25
kernels 45
torch 90'

names=$(awk '{ printf " %s", $1 }' <<<"$all_parts")
wanted=" ${*:-$names} "
for word in $wanted; do
    grep -q "^$word " <<<"$all_parts" || { echo "bench/gpu.sh: no part '$word'; there are:$names" >&2; exit 2; }
done
chosen=$(while read -r part seconds; do [[ $wanted != *" $part "* ]] || echo "$part $seconds"; done <<<"$all_parts")
verdicts='' failed=0 planned=$(awk '{ n += $2 } END { print n }' <<<"$chosen")
while read -r part seconds; do
    run_part "$part" $(((whole - SECONDS) * seconds / planned)) </dev/null
    planned=$((planned - seconds))
done <<<"$chosen"
summary
exit $failed
