# L05 on one device: a checkpoint goes on under a plan with other micro-batches.
. "$TESTS/run/lib.bash"
make_text t.txt 600
for m in 1 2 8; do make_plan m$m.plan -D dtype=f64 --with "microbatches = $m"; done
"$RELEASE/prun" m1.plan --data t.txt --steps 8 --save one --save-every 4 --keep 9 --log one.log 2>err || exit 1
near() { paste <(field loss "$1") <(field loss "$2") | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-11) bad = 1; n++ } END { exit bad || n != '"$3"' }'; }
for m in 2 8; do
    check "steps 5-8 with $m micro-batches equal those with one" '"$RELEASE/prun" m$m.plan --data t.txt --steps 8 --resume one/step-00000004 --log $m.log 2>>err &&
        near <(tail -n 4 one.log) $m.log 4'
done
