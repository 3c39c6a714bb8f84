#!/bin/bash
# What `make demo` shows: a model is checked, planned for one device, its memory
# shown, and the plan trained on real English; then the held-out loss is compared
# with what the text's own statistics allow, and the first steps with those of four
# ranks under another layout; then times and memory of four virtual devices are predicted
# and measured (predict.sh).  Fails unless it learned, the losses agree, and the predictions hold, where any can be made.
set -eu
cd "$(dirname "$0")/.."
bin=build/release
dir=build/demo
model=models/tiny/char_gpt.pmodel
cluster=laptop1
seconds=65                           # of optimizer steps that a demo is to have
least=600 most=4000                  # steps: fewer do not learn enough, more are not needed
layout='mesh pp = 1, dp = 2, cp = 1, ep = 1, tp = 2; split heads, ffn, vocab by tp; split seq by tp'

. bench/step.bash

# The median time of a step of plan $1.
step_seconds() {
    $bin/prun "$1" --data "$dir/train.txt" --steps 20 --log "$dir/probe.jsonl" 2>"$dir/probe.err" || fail "$(cat "$dir/probe.err")"
    sed -nE 's/.*"seconds": ([0-9.e-]+),.*/\1/p' "$dir/probe.jsonl" | sort -g | sed -n 10p
}

mkdir -p "$dir"
step bench/text/make_text.sh "$dir"
step $bin/pplan check "$model"

# A run as long as suits this machine: its length shapes the learning rate, so it is part of the plan.
$bin/pplan plan "$model" -c "$cluster" -o "$dir/probe.plan" >/dev/null
each=$(step_seconds "$dir/probe.plan")
steps=$(awk -v each="$each" -v s=$seconds -v least=$least -v most=$most \
    'BEGIN { n = int(s / each / 200 + 0.5) * 200; print (n < least ? least : (n > most ? most : n)) }')
printf '\na step takes %.0f ms here, so the run has %d of them\n' "$(awk -v e="$each" 'BEGIN { print 1000 * e }')" "$steps"
options=(-D steps="$steps")
run=(--eval-every $((steps / 4)))

step $bin/pplan plan "$model" -c "$cluster" "${options[@]}" -o "$dir/demo.plan"
step $bin/pplan dump "$dir/demo.plan" --memory
rm -f "$dir"/*.jsonl
step $bin/prun "$dir/demo.plan" --data "$dir/train.txt" --eval "$dir/val.txt" "${run[@]}" --log "$dir/log.jsonl"

# The last evaluation; what is no number there ("nan", null) is no loss.
last=$(grep '"eval_loss"' "$dir/log.jsonl" | tail -n 1) || true
loss=$(sed -nE 's/.*"eval_loss": ?([0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?)[,} ].*/\1/p' <<<"$last")
[ -n "$loss" ] || fail "the last eval_loss in $dir/log.jsonl is no number: '$last'"
step $bin/bench/text/entropy "$dir/val.txt" | tee "$dir/entropy"
unigram=$(awk '$1 == "unigram" { print $2 }' "$dir/entropy")
bigram=$(awk '$1 == "bigram" { print $2 }' "$dir/entropy")

printf '\nnats per byte of held-out text\n'
printf '  %-42s %s\n' "best model of single bytes (unigram)" "$unigram" \
    "best model of pairs of bytes (bigram)" "$bigram" "this model, which never saw the text" "$loss"
awk -v loss="$loss" -v bigram="$bigram" 'BEGIN { exit !(loss < bigram) }' ||
    fail "the held-out loss $loss is not below the bigram entropy $bigram: it did not learn"
echo "demo: it learned more than pairs of bytes"

# The same model, data and seed on four ranks: the numbers of the first steps again.
step $bin/pplan plan "$model" -c laptop4 "${options[@]}" --with "$layout" -o "$dir/ranks.plan"
step $bin/prun "$dir/ranks.plan" --data "$dir/train.txt" --steps 10 --log "$dir/ranks.jsonl"
losses() { sed -nE 's/.*"step": ([0-9]+), "loss": ([0-9.e+-]+),.*/\1 \2/p' "$1"; }
printf '\n%4s  %-18s  %-18s  %s\n' step "loss, one rank" "loss, four ranks" "relative difference"
join <(losses "$dir/log.jsonl") <(losses "$dir/ranks.jsonl") | awk '
    { d = $2 > $3 ? ($2 - $3) / $3 : ($3 - $2) / $2; if (d > most) most = d; printf "%4d  %-18s  %-18s  %.1e\n", $1, $2, $3, d }
    END { exit !(NR == 10 && most < 1e-5) }' || fail "the losses of four ranks differ by more than rounding in f32 (1e-5)"
echo "demo: two by two ranks, each with its part of the batch and of every layer, have the losses of one"

bench/predict.sh "$model" "$dir/train.txt" "$dir" "${options[@]}"
