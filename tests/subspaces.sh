#!/bin/bash
# A search that leaves more open finds nothing slower: not slower than the canonical splits of Megatron, which lie in
# its space, and where one of them fits, something is found.  Plans within 0.5 % tie.
cd "$TMP" || exit 2
models=$TOP/models

# step MODEL CLUSTER BATCH RULES: ns of the plan; nothing where none fits; false where it ends in any other way, as after 300 s, which are for what hangs.
step() {
    local status
    timeout 300 "$RELEASE/pplan" plan "$models/$1.pmodel" -c "$2" -D batch="$3" ${4:+--with "$4"} -o plan --json >json 2>said
    status=$?
    if [ $status = 0 ]; then
        sed -n 's/.*"step_ns": *\([0-9]*\).*/\1/p' json | head -n 1
    else
        [ $status = 1 ] && grep -q "does not fit" said || { echo "status $status of '$1' on $2, '$4' (124: too late)"; cat said; return 1; } >&2
    fi
}

# row MODEL CLUSTER BATCH OPEN PINNED..: each PINNED allows less than OPEN.
row() {
    local what="$1 on $2, ${4:-no rules}" ended open pinned ns
    open=$(step "$1" "$2" "$3" "$4")
    ended=$?
    for pinned in "${@:5}"; do
        if ns=$(step "$1" "$2" "$3" "$pinned") && [ $ended = 0 ] && { [ -z "$ns" ] || { [ -n "$open" ] && [ "$((open * 1000))" -le "$((ns * 1005))" ]; }; }; then
            echo "ok $what: no slower than with $pinned"
        else
            echo "${open:-nothing fits} ns, with $pinned $ns ns"
            echo "not ok $what: no slower than with $pinned"
        fi
    done
}

split='split heads, ffn, vocab by tp'
seq="$split; split seq by tp"
for row in 'llama2_13b dgx_h100 64 8' 'llama2_13b dgx_a100_40gb 64 8' 'llama2_7b rtx4090_x8 64 8' 'llama3_8b dgx_h100 64 4' 'llama3_8b dgx_h100 64 8' 'llama3_1b dgx_h100 64 2'; do
    read -r model cluster batch tp <<<"$row"
    row "$model" "$cluster" "$batch" "mesh tp = $tp" "mesh tp = $tp; $split" "mesh tp = $tp; $seq"
done
padded="mesh tp = 4; pad vocab to 256"                 # which gives it a divisor
row gpt2 dgx_a100 64 "$padded" "$padded; $split" "$padded; $seq"
row llama3_8b rtx4090_x8 64 '' "mesh pp = 2, tp = 4; $split; recompute layer full" "mesh tp = 8; $seq; recompute layer full"
row llama2_13b rtx4090_x8 64 '' "mesh pp = 2, tp = 4; $seq; recompute layer full" "mesh tp = 8; $seq; recompute layer full" "mesh pp = 4, tp = 2; $split; recompute layer full"
