# L07: the learning rate is a function of the number of optimizer steps alone.
. "$TESTS/run/lib.bash"
make_text t.txt 600
set_=(--set lr=1e-3 --set min_lr=1e-4 --set warmup=4 --set decay=cosine --set steps=20)
# Linear to 1e-3 at step 4, then 1e-4 + 4.5e-4 (1 + cos(pi (t - 4) / 16)).
cat >want <<'END'
1 2.5e-4
4 1e-3
8 8.68198e-4
9 8.00007e-4
12 5.5e-4
20 1e-4
END
right() {                            # LOG: its rates are those wanted
    paste -d ' ' <(field step "$1") <(field lr "$1") | awk 'NR == FNR { want[$1] = $2; n++; next }
        $1 in want { d = $2 / want[$1] - 1; if (d < 0) d = -d; if (d < 2e-6) good++; else print } END { exit good != n }' want -
}
for m in 1 4; do
    make_plan m$m.plan -D hidden=8 -D heads=2 --with "microbatches = $m"
    check "rates with $m micro-batches" '"$RELEASE/prun" m$m.plan --data t.txt "${set_[@]}" --log $m.log 2>>err && right $m.log'
done
run() { "$RELEASE/prun" m4.plan --data t.txt "${set_[@]}" --save d --log "$@" 2>>err; }
check "rates after two resumes" 'run r.log --steps 8 && run r.log --steps 11 --resume d && run r.log --resume d && right r.log'
check "a resume without the run's settings names each that changed" '"$RELEASE/prun" m4.plan --data t.txt --steps 21 --resume d 2>said && grep -q "the optimizer.s .warmup. was 4 and is now 0" said &&
    grep -q "the optimizer.s .decay. was .cosine. and is now .none." said && ! grep -q beta1 said && ! "$RELEASE/prun" m4.plan --data t.txt "${set_[@]}" --steps 21 --resume d 2>&1 | grep -q "note: the optimizer"'
