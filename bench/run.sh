#!/bin/bash
# What `make bench` runs: collectives of ranks on this machine against Open MPI; one
# training step of GPT-2 124M in prun and in PyTorch, in turns, and our matrix product
# against the installed ones. Fails when a ratio is below its bar. README.md says
# what is measured and how to read it.
set -eu
cd "$(dirname "$0")/.."

pplan=build/release/pplan
prun=build/release/prun
gemm=build/release/bench/peer_gemm
python=build/venv/bin/python
dir=build/bench
sections=${BENCH_SECTIONS:-comm steps}
model=models/gpt2.pmodel
options=(-D dtype=f32 -D drop=0.0)
batch=4
seqs=${BENCH_SEQS:-64 256}           # tokens a sequence
threads=${BENCH_THREADS:-1 2}
rounds=${BENCH_ROUNDS:-3}            # turns of prun and PyTorch
steps=${BENCH_STEPS:-3}              # timed steps a turn
comm_rounds=${BENCH_COMM_ROUNDS:-7}  # turns of our collectives and Open MPI's

fail() {
    printf 'bench: %s\n' "$1" >&2
    exit 1
}

# A cluster of one device with $1 threads; the rates only matter to predictions.
cluster_text() {
    cat <<CLUSTER
device cpu "this machine" {
  backend    = cpu
  threads    = $1
  memory     = 12 GiB
  reserve    = 512 MiB
  bandwidth  = 25 GB/s
  peak.f32   = $((100 * $1)) GFLOP/s
  efficiency = [[0, 0.20], [1 GFLOP, 0.85]]
  launch     = 5 us
}

cluster bench_$1 "one CPU device, threads: $1" {
  level socket = 1 * cpu { link = 6 GB/s, latency = 3 us, topology = full }
}
CLUSTER
}

need() {
    local program
    for program in "$@"; do
        [ -x "$program" ] || fail "$program is missing: type make bench"
    done
}

bench_comm() {
    need build/release/bench/bench_comm build/release/bench/peer_mpi
    python3 bench/comm.py --ours build/release/bench/bench_comm --mpi build/release/bench/peer_mpi --rounds "$comm_rounds"
}

bench_steps() {
    local seq t plan
    need $pplan $prun $gemm $python
    # torch.compile needs a C++ compiler; without one the peer would be weaker than it could be.
    command -v g++ >/dev/null || fail "g++ is missing: apt-get install g++ python3-dev"
    rm -f "$dir/steps.jsonl" "$dir/gemm.jsonl"
    "$gemm" --rows $((batch * 64)) >"$dir/gemm.jsonl"
    for seq in $seqs; do
        for t in $threads; do
            cluster_text "$t" >"$dir/cpu$t.pcluster"
            plan=$dir/gpt2_${seq}_$t.plan
            "$pplan" plan $model -c "$dir/cpu$t.pcluster" "${options[@]}" -D batch=$batch -D seq="$seq" -o "$plan" >"$plan.log" ||
                fail "pplan found no plan, see $plan.log"
            printf 'measuring: batch %s, seq %s, threads %s\n' "$batch" "$seq" "$t"
            "$python" bench/compare.py step --prun $prun --plan "$plan" --batch $batch --seq "$seq" --threads "$t" \
                --rounds "$rounds" --steps "$steps" --out "$dir/steps.jsonl"
        done
    done
    "$python" bench/compare.py table --steps "$dir/steps.jsonl" --gemm "$dir/gemm.jsonl"
}

mkdir -p "$dir"
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
"$prun" --version
# Every section runs, whatever the one before it said; 'set -e' would not hold inside '||'.
status=0
for section in $sections; do
    set +e
    case $section in
    comm) (set -e; bench_comm) ;;
    steps) (set -e; bench_steps) ;;
    *) fail "there is no section '$section', expected comm or steps" ;;
    esac
    [ $? -eq 0 ] || status=1
    set -e
done
exit $status
