# What a run trains on, changed at a resume, is legitimate but never silent; the
# layout is no change.
. "$TESTS/run/lib.bash"
make_text t.txt 900
make_text longer.txt 1000
plan() { local out=$1; shift; "$RELEASE/pplan" plan "$MODELS/tiny/tiny_llama.pmodel" -c laptop1 -D layers=1 -D hidden=16 -D heads=2 "$@" -o "$out" >/dev/null 2>said || { cat said; exit 2; }; }
plan p.plan -D batch=8 -D seq=16
plan cut.plan -D batch=8 -D seq=16 --with 'microbatches = 4'
plan batch.plan -D batch=4 -D seq=16
plan seq.plan -D batch=8 -D seq=8
run() { "$RELEASE/prun" "$@" 2>said || ! cat said; }
run p.plan --data t.txt --steps 2 --save d || exit 2
notes() { grep -c "^note: the data's" said; }
resume() { local plan=$1 data=$2; run "$plan" --data "$data" --steps 3 --resume d; }
check "the same is silent" 'resume p.plan t.txt && ! grep -v "not kept" said | grep -q "^note"'
check "so are other micro-batches" 'resume cut.plan t.txt && ! grep -v "not kept" said | grep -q "^note"'
check "so are the data in another folder" 'mkdir e && cp t.txt e && resume p.plan e/t.txt && ! grep -v "not kept" said | grep -q "^note"'
check "another batch is said" 'resume batch.plan t.txt && [ "$(notes)" = 1 ] && grep -q "^note: the data.s .batch. was .8. and is now .4.$" said'
check "another length is said" 'resume seq.plan t.txt && grep -q "^note: the data.s .sample of ids. was .\[16\]. and is now .\[8\].$" said &&
    grep -q "^note: the data.s .samples. was .56. and is now .112.$" said'
check "other data are said" 'resume p.plan longer.txt && [ "$(notes)" = 2 ] && grep -q "^note: the data.s .files. was .t.txt of 900 bytes. and is now .longer.txt of 1000 bytes.$" said &&
    grep -q "^note: the data.s .samples. was .56. and is now .62.$" said'
check "random data instead of a file are said" 'resume p.plan random && grep -q "and is now .random.$" said'
