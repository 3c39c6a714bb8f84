# Starting, saving and resuming need no more memory than training: the most that is resident, by rank, also where another
# number of ranks goes on.  A second copy of the moments would be half of the states more.
. "$TESTS/run/lib.bash"

# plan_on FILE RULES: a perceptron whose states are nearly all of its memory.
plan_on() {
    "$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop4 -D dtype=f32 -D batch=8 -D pixel=2048 -D hidden=2048 --with "$2" -o "$1" >said || cat said
}

# most FILE: MiB of the rank that needed most, of the run that was last.
most() { cat report report.* 2>/dev/null | awk '$1 == "peak_kib" && $2 > n { n = $2 } END { print int(n / 1024) }'; }

train() {                            # PLAN OPTION...
    rm -f report report.*
    MEMORY_REPORT=report LD_PRELOAD=$RELEASE/preload/memory.so "$RELEASE/prun" "$@" --data random >/dev/null 2>err || cat err
}
plan_on one.plan 'devices = [0]'
plan_on two.plan 'devices = [0, 1]; mesh dp = 2; shard optimizer by dp'
plan_on four.plan 'mesh dp = 2, tp = 2; split hidden by tp'
states=$("$RELEASE/pplan" dump two.plan --memory | awk '$1 == "map" && !n++ { print int($3 / 1048576) }')
allowed=$((states / 10))
for p in one two four; do
    train $p.plan --steps 2
    declare "plain_$p=$(most)"
done
train two.plan --steps 2 --save saved
saving=$(most)
check "the run is large enough to see a copy" '[ $states -gt 40 ] && [ $plain_one -gt $states ]'
check "saving" '[ $saving -le $((plain_two + allowed)) ] || ! echo "$saving MiB, $plain_two without"'
for p in one two four; do
    plain=plain_$p
    train $p.plan --steps 4 --resume saved
    resumed=$(most)
    check "resuming with the ranks of $p.plan" '[ "$resumed" -gt 0 ] && [ "$resumed" -le $((${!plain} + allowed)) ] || ! echo "$resumed MiB, ${!plain} without"'
done
