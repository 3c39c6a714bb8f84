#!/bin/bash
# What `make bench` runs: collectives of ranks on this machine against Open MPI; one
# training step of GPT-2 124M in prun and in PyTorch, in turns, and our matrix product
# against the installed ones; that step on two ranks, against one and against PyTorch
# DDP. Fails when a ratio is below its bar. README.md says what is measured and how to
# read it.
set -eu
cd "$(dirname "$0")/.."

pplan=build/release/pplan
prun=build/release/prun
gemm=build/release/bench/peer_gemm
python=build/venv/bin/python
dir=build/bench
sections=${BENCH_SECTIONS:-comm steps ranks}
model=models/gpt2.pmodel
options=(-D dtype=f32 -D drop=0.0)
batch=4
seqs=${BENCH_SEQS:-64 256}           # tokens a sequence
threads=${BENCH_THREADS:-1 2}
rounds=${BENCH_ROUNDS:-3}            # turns of prun and PyTorch
steps=${BENCH_STEPS:-3}              # timed steps a turn
comm_rounds=${BENCH_COMM_ROUNDS:-9}  # turns of our collectives and Open MPI's

fail() {
    printf 'bench: %s\n' "$1" >&2
    exit 1
}

# A cluster of $1 devices with $2 threads each, which share 12 GiB; the rates only
# matter to predictions.
cluster_text() {
    cat <<CLUSTER
device cpu "this machine" {
  backend    = cpu
  threads    = $2
  memory     = $((12 / $1)) GiB
  reserve    = 512 MiB
  bandwidth  = 25 GB/s
  peak.f32   = $((100 * $2)) GFLOP/s
  efficiency = [[0, 0.20], [1 GFLOP, 0.85]]
  launch     = 5 us
}

cluster bench_$1x$2 "CPU devices: $1, threads of each: $2" {
  level socket = $1 * cpu { link = 6 GB/s, latency = 3 us, topology = full }
}
CLUSTER
}

# make_plan NAME DEVICES THREADS SEQ [OPTION...]: writes $dir/NAME.plan
make_plan() {
    local name=$1 cluster=$dir/cpu$2x$3.pcluster seq=$4
    cluster_text "$2" "$3" >"$cluster"
    shift 4
    "$pplan" plan $model -c "$cluster" "${options[@]}" -D batch=$batch -D seq="$seq" "$@" -o "$dir/$name.plan" >"$dir/$name.plan.log" ||
        fail "pplan found no plan, see $dir/$name.plan.log"
}

need() {
    local program
    for program in "$@"; do
        [ -x "$program" ] || fail "$program is missing: type make bench"
    done
}

# torch.compile needs a C++ compiler; without one the peer would be weaker than it could be.
need_compiler() {
    command -v g++ >/dev/null || fail "g++ is missing: type make bench"
}

bench_comm() {
    need build/release/bench/bench_comm build/release/bench/peer_mpi
    python3 bench/comm.py --ours build/release/bench/bench_comm --mpi build/release/bench/peer_mpi --rounds "$comm_rounds"
}

bench_steps() {
    local seq t
    need $pplan $prun $gemm $python
    need_compiler
    rm -f "$dir/steps.jsonl" "$dir"/gemm_*.jsonl
    for seq in $seqs; do
        for t in $threads; do
            printf 'measuring: products of %s tokens, threads %s\n' $((batch * seq)) "$t"
            "$gemm" --rows $((batch * seq)) --threads "$t" >"$dir/gemm_${seq}_$t.jsonl"
        done
    done
    for seq in $seqs; do
        for t in $threads; do
            make_plan "gpt2_${seq}_$t" 1 "$t" "$seq"
            printf 'measuring: batch %s, seq %s, threads %s\n' "$batch" "$seq" "$t"
            "$python" bench/compare.py step --prun $prun --plan "$dir/gpt2_${seq}_$t.plan" --batch $batch --seq "$seq" --threads "$t" \
                --rounds "$rounds" --steps "$steps" --out "$dir/steps.jsonl"
        done
    done
    "$python" bench/compare.py table --steps "$dir/steps.jsonl" --gemm "$dir"/gemm_*.jsonl
}

# Classes cannot be halved as they are, so the vocabulary is padded, like that of the peer.
bench_ranks() {
    local split='mesh tp = 2; pad vocab to 128; split heads, ffn, vocab'
    need $pplan $prun $python
    need_compiler
    make_plan one 1 1 64
    make_plan dp 2 1 64 --with 'mesh dp = 2'
    make_plan dp_shard 2 1 64 --with 'mesh dp = 2; shard optimizer by dp'
    make_plan tp 2 1 64 --with "$split by tp"
    make_plan tp_seq 2 1 64 --with "$split, seq by tp"
    printf 'measuring: two ranks\n'
    "$python" bench/ranks.py --prun $prun --one "$dir/one.plan" \
        --plan "dp = 2=$dir/dp.plan" --plan "dp = 2: optimizer sharded=$dir/dp_shard.plan" \
        --plan "tp = 2: heads, ffn, vocab=$dir/tp.plan" --plan "tp = 2: heads, ffn, vocab, seq=$dir/tp_seq.plan" \
        --batch $batch --seq 64 --rounds "$rounds" --steps "$steps"
}

mkdir -p "$dir"
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
"$prun" --version
# Every section runs, whatever the one before it said; 'set -e' would not hold inside '||'.
status=0
for section in $sections; do
    start=$SECONDS
    set +e
    case $section in
    comm) (set -e; bench_comm) ;;
    steps) (set -e; bench_steps) ;;
    ranks) (set -e; bench_ranks) ;;
    *) fail "there is no section '$section', expected comm, steps or ranks" ;;
    esac
    [ $? -eq 0 ] || status=1
    printf 'section %s: %s s\n' "$section" "$((SECONDS - start))"
    set -e
done
exit $status
