#!/bin/bash
# What `make bench` runs: collectives of ranks on this machine against Open MPI; our
# matrix product against the installed ones; training steps of GPT-2 124M and a small
# Llama, f32 and bf16, on one thread, two threads and two ranks, against PyTorch. Fails
# when a ratio is below its bar. README.md says what is measured and how to read it.
set -eu
cd "$(dirname "$0")/.."

python=build/venv/bin/python
dir=build/bench
sections=${BENCH_SECTIONS:-comm products steps}
rows=${BENCH_ROWS:-*}                # of steps: patterns such as 'gpt2-64/*/1t llama-256/f32/*'
rounds=${BENCH_ROUNDS:-2}            # turns of prun and PyTorch
tokens=${BENCH_TOKENS:-256 1024}     # rows of the products
threads=${BENCH_THREADS:-1 2}        # of the products
comm_rounds=${BENCH_COMM_ROUNDS:-9}  # turns of our collectives and Open MPI's

fail() {
    printf 'bench: %s\n' "$1" >&2
    exit 1
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

bench_products() {
    local n t
    need build/release/bench/peer_gemm
    rm -f "$dir"/gemm_*.jsonl
    for n in $tokens; do
        for t in $threads; do
            printf 'measuring: products of %s tokens, threads %s\n' "$n" "$t"
            build/release/bench/peer_gemm --rows "$n" --threads "$t" >"$dir/gemm_${n}_$t.jsonl"
        done
    done
    python3 bench/products.py "$dir"/gemm_*.jsonl
}

# torch.compile needs a C++ compiler; without one the peer would be weaker than it could be.
bench_steps() {
    need build/release/pplan build/release/prun $python
    command -v g++ >/dev/null || fail "g++ is missing: type make bench"
    rm -f "$dir/steps.jsonl"
    $python bench/steps.py measure --rows "$rows" --rounds "$rounds" --dir "$dir"
    $python bench/steps.py table --dir "$dir"
}

mkdir -p "$dir"
grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
build/release/prun --version
# Every section runs, whatever the one before it said; 'set -e' would not hold inside '||'.
status=0
for section in $sections; do
    start=$SECONDS
    set +e
    case $section in
    comm) (set -e; bench_comm) ;;
    products) (set -e; bench_products) ;;
    steps) (set -e; bench_steps) ;;
    *) fail "there is no section '$section', expected comm, products or steps" ;;
    esac
    [ $? -eq 0 ] || status=1
    printf 'section %s: %s s\n' "$section" "$((SECONDS - start))"
    set -e
done
exit $status
