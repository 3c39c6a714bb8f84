# C03, C04: what happens to samples that fill no batch, in training and evaluation.
. "$TESTS/run/lib.bash"
make_text ten.txt $((10 * 16 + 1))
make_plan p.plan -D batch=4
check "C03 one epoch of 10 samples is 2 steps of 4, and 2 are left over" 'prun p.plan --data ten.txt --set steps=0 --log l 2>said &&
    grep -q "one epoch: 10 samples, 2 steps of 4; 2 left over" said && [ "$(field step l | tr "\n" " ")" = "1 2 " ]'

# The held-out loss of 5 samples: rows that are absent do not count, whatever the cut.
make_text five.txt $((5 * 16 + 1)) 7
evaluate() { "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=1 -D dtype=f64 -D drop=0.5 "$@" -o e.plan >/dev/null &&
    "$RELEASE/prun" e.plan --data ten.txt --eval five.txt --steps 1 --set lr=0 --log l 2>>err && field eval_loss l; }
whole=$(evaluate -D batch=5)
for cut in "batch=2 1" "batch=2 2" "batch=4 1" "batch=4 2" "batch=8 8"; do
    set -- $cut
    got=$(evaluate -D $1 --with "microbatches = $2")
    check "C04 $1, $2 micro-batches: the loss of all tokens" 'awk "BEGIN { d = $got - $whole; exit !(d < 1e-12 && d > -1e-12) }"'
done
# Their mean, one by one.
sum=0
for k in 0 1 2 3 4; do
    tail -c +$((k * 16 + 1)) five.txt | head -c 17 >one.txt
    cp five.txt keep.txt && cp one.txt five.txt
    sum=$(awk "BEGIN { printf \"%.17g\", $sum + $(evaluate -D batch=1) }")
    cp keep.txt five.txt
done
check "C04 it is the mean over all tokens" 'awk "BEGIN { d = $sum / 5 - $whole; exit !(d < 1e-12 && d > -1e-12) }"'
