# Run twice: same plan, data, seed and threads give the same bits, dropout included.
. "$TOP/tests/run/lib.bash"
make_text train.txt 6000
make_text val.txt 1000 7
make_plan x.plan -D drop=0.1
grep -q 'threads *= 2' x.plan || { echo "not ok the device has two threads"; exit; }

# run DIR SEED
run() {
    "$RELEASE/prun" x.plan --data train.txt --eval val.txt --eval-every 4 --steps 8 --seed "$2" \
        --save "$1" --save-every 4 --log "$1.jsonl" >said 2>&1 || cat said
}
# Times differ; nothing else may.
timeless() { sed -E 's/, "(seconds|tokens_per_s|mfu)": [^,}]*//g' "$1.jsonl"; }

run first 1
run second 1
run other 2
check "the runs are complete" '[ "$(grep -c grad_norm first.jsonl)" -eq 8 ] && [ -s first/step-00000008/moments.safetensors ]'
check "the logs are the same but for time" 'cmp <(timeless first) <(timeless second)'
check "every file of the checkpoints is the same" 'diff -r first second'
check "another seed gives another log" '! cmp -s <(timeless first) <(timeless other)'
check "and other weights" '! cmp -s first/step-00000008/weights.safetensors other/step-00000008/weights.safetensors'
