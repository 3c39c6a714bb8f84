# A last stage that has nothing but the loss makes its gradient going forward, where the logits lay, and
# sends it going backward: the next logits may come only when it was taken.
. "$TESTS/run/lib.bash"
model=$MODELS/tiny/tiny_gpt2.pmodel
plan() { "$RELEASE/pplan" plan "$model" -c laptop4 -D layers=1 -D batch=6 -D seq=4 -D dtype=f64 --with "$2" -o "$1" >said 2>&1 || cat said; }
norms() { "$RELEASE/prun" "$@" --data random --steps 2 --log l >said 2>&1 && grep -o '"grad_norm": [0-9.]\{12\}' l; }
plan one.plan 'devices = [0]; microbatches = 1'
want=$(norms one.plan)
for schedule in 1f1b gpipe; do
    plan two.plan "mesh pp = 2; devices = [0, 1]; microbatches = 3; schedule = \"$schedule\"; stage before cross_entropy"
    for ranks in processes threads; do
        bad=0
        for _ in 1 2 3 4 5 6 7 8; do
            [ "$(norms two.plan --ranks $ranks)" = "$want" ] || bad=$((bad + 1))
        done
        check "$schedule, $ranks: the norms of one rank, eight times" "[ -n '$want' ] && [ $bad = 0 ]"
    done
done
