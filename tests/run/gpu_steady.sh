# What a step on a GPU does not do, by prun on the emulator: it allocates nothing, creates nothing, asks no library what it does best,
# and makes no call that blocks.  All of that comes before step 0, so more steps or micro-batches make no more of these calls.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
never='Malloc|Alloc|Free|Create|Destroy|Synchronize|AlgoGetHeuristic|Finalize|Instantiate|InitRank|Split|GetUniqueId|Properties'

# calls FILE STEPS PLAN OPTION...: those of a run.
calls() {
    CUDAEMU_CALLS=$TMP/calls "$PRUN" "${@:3}" --device cudaemu --data t.txt --steps "$2" 2>said || { cat said; return 1; }
    grep -E "$never" calls >"$1"
}
same_calls() { diff "$1" "$2" && grep -q "^cudaMalloc [1-9]" "$1" && grep -q "^cublasLtMatmulAlgoGetHeuristic [1-9]" "$1"; }

all() {
    local kind
    for kind in "gpt2 layers=2" "llama layers=2 dtype=bf16"; do
        set -- $kind
        plan one.plan $1 "${*:2}" "devices = [0]; microbatches = 4"
        plan four.plan $1 "${*:2}" "mesh dp = 2, tp = 2; split heads, ffn, vocab by tp; shard optimizer by dp; microbatches = 2"
        plan stages.plan $1 "${*:2}" "mesh pp = 2; devices = [0, 1]; microbatches = 4; stage before $([ $1 = gpt2 ] && echo h || echo layer)[1]"
        for p in one.plan "four.plan --ranks threads" "stages.plan --ranks threads"; do
            check "nine steps make no more of such calls than three ($kind, ${p%.*})" 'calls a 3 $p && calls b 9 $p && same_calls a b'
        done
        check "nor with graphs ($kind)" 'calls a 7 one.plan --graphs && calls b 11 one.plan --graphs && same_calls a b'
        plan m1.plan $1 "${*:2} batch=2" "devices = [0]; microbatches = 1"
        plan m4.plan $1 "${*:2} batch=8" "devices = [0]; microbatches = 4"
        check "nor do four micro-batches than one ask for more algorithms ($kind)" 'calls a 1 m1.plan && calls b 1 m4.plan && diff <(grep Heuristic a) <(grep Heuristic b) && grep -q Heuristic a'
    done
}
make_text t.txt $((64 * 16 + 1))
on_gpus all
