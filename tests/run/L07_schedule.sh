# L07: the learning rate is a function of the number of optimizer steps alone.
. "$TESTS/run/lib.bash"
. "$TESTS/run/rates.bash"
make_text t.txt 600
for m in 1 4; do
    make_plan m$m.plan -D hidden=8 -D heads=2 --with "microbatches = $m"
    check "rates with $m micro-batches" '"$RELEASE/prun" m$m.plan --data t.txt "${schedule[@]}" --log $m.log 2>>err && right $m.log'
done
run() { "$RELEASE/prun" m4.plan --data t.txt "${schedule[@]}" --save d --log "$@" 2>>err; }
check "rates after two resumes" 'run r.log --steps 8 && run r.log --steps 11 --resume d && run r.log --resume d && right r.log'
check "a resume without the run's settings names each that changed" '"$RELEASE/prun" m4.plan --data t.txt --steps 21 --resume d 2>said && grep -q "the optimizer.s .warmup. was 4 and is now 0" said &&
    grep -q "the optimizer.s .decay. was .cosine. and is now .none." said && ! grep -q beta1 said && ! "$RELEASE/prun" m4.plan --data t.txt "${schedule[@]}" --steps 21 --resume d 2>&1 | grep -q "note: the optimizer"'
