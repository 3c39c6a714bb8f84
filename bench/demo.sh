#!/bin/bash
# What `make demo` shows: a model is checked, planned for one device, its memory
# shown, and the plan trained on real English; then the held-out loss is compared
# with what the text's own statistics allow.  Fails unless it learned.
set -eu
cd "$(dirname "$0")/.."
bin=build/release
dir=build/demo
model=models/tiny/char_gpt.pmodel
cluster=laptop1
options=()                           # overrides of the model's dims and params: -D name=value
run=(--eval-every 200)

# Show a command as a person would type it, then run it.
step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

fail() {
    printf '\ndemo: %s\n' "$1" >&2
    exit 1
}

mkdir -p "$dir"
step bench/text/make_text.sh "$dir"
step $bin/pplan check "$model"
step $bin/pplan plan "$model" -c "$cluster" "${options[@]}" -o "$dir/demo.plan"
step $bin/pplan dump "$dir/demo.plan" --memory
rm -f "$dir/log.jsonl"
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
