# Checkpoints and dumps of ranks that are processes: other layouts go on from them, SIGTERM
# saves, and when any call of any rank's save fails, the checkpoint before stands.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
make_text t.txt 2000
make_plan one.plan -D dtype=f64
dtype=f64
plan_many() { "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=1 -D dtype=$dtype --with "$2" -o "$1" >/dev/null || exit 2; }
plan_many dp.plan 'mesh dp = 4; microbatches = 2'
plan_many four.plan 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp'

# close FILE FILE: losses agree to 1e-10.
close() {
    paste <(field loss "$1") <(field loss "$2") | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-20 { print; bad = 1 } END { exit bad || NR == 0 }'
}

"$PRUN" one.plan --data t.txt --steps 6 --log whole.log 2>said || cat said
tail -n 3 whole.log >rest.log
for x in one dp four; do
    "$PRUN" $x.plan --data t.txt --steps 3 --save $x 2>said || cat said
    for y in one dp four; do
        rm -f l
        check "$y goes on where $x stopped" '"$PRUN" $y.plan --data t.txt --steps 6 --resume $x --log l 2>said && close l rest.log && ! grep -q "was .* and is now" said' || cat said
    done
done
check "the same numbers are the same files" '"$PRUN" four.plan --data t.txt --steps 3 --resume one --dump weights@3=w --dump moments@3=m 2>said;
    cmp w one/step-00000003/weights.safetensors && cmp m one/step-00000003/moments.safetensors'
check "ranks as threads write them too" 'prun four.plan --data t.txt --steps 3 --save threads --ranks threads 2>said && same four/step-00000003 threads/step-00000003' || cat said
check "a pipe takes a dump of all ranks" '"$PRUN" four.plan --data t.txt --steps 3 --resume one --dump weights@3=- 2>said | cat >piped; cmp w piped' || cat said
check "another run may not save there at the same time" '(flock 9; refused 1 "another run is saving" "$PRUN" four.plan --data t.txt --steps 4 --resume four --save four) 9>>four/lock'
check "a path no rank has is refused once" 'refused 2 "did you mean" "$PRUN" four.plan --data t.txt --steps 1 --dump "h[0].atn.q@1=x" && [ "$(grep -c error: said)" = 1 ] && [ ! -e x ]'
check "a damaged checkpoint is refused once" 'cp -r one other && echo x >>other/step-00000003/moments.safetensors &&
    refused 1 "it has 288538 bytes, state.json says 288536" "$PRUN" four.plan --data t.txt --steps 4 --resume other && [ "$(grep -c error: said)" = 1 ]'

# The step is finished by all, and saved.
rm -f l
"$PRUN" four.plan --data t.txt --steps 1000000 --save term --log l >said 2>&1 &
pid=$!
wait_until 'grep -qs "\"step\": 3," l'
kill -TERM $pid
check "SIGTERM: saved, status 0" 'wait $pid && grep -q "stopped as asked; saved" said' || cat said
check "the last step of the log is the one saved" '[ "$(cat term/latest)" = "$(printf step-%08d "$(tail -n 1 l | field step -)")" ]'
check "one device goes on from there" '"$PRUN" one.plan --data t.txt --steps "$(($(tail -n 1 l | field step -) + 1))" --resume term 2>said' || cat said

# Rank 0 makes the files, rank 1 only adds to them.
preload=$RELEASE/preload/fault.so
save() { rm -rf d && cp -r four d && "$@" "$PRUN" four.plan --data t.txt --steps 4 --resume d --save d --keep 9 >said 2>&1; }
for rank in 0 1; do
    save env FAULT_RANK=$rank FAULT_COUNT=$TMP/count LD_PRELOAD=$preload || cat said
    calls=$(cat count) failed=0 clean=0
    for ((k = 1; k <= calls; k += 1 + calls / 40)); do
        save env FAULT_RANK=$rank FAULT_AT=$k LD_PRELOAD=$preload
        status=$?
        [ $status = 0 ] && continue
        failed=$((failed + 1))
        [ $status = 3 ] && grep -q "No space left" said && [ "$(grep -c "checkpoint of step 4 was not saved; earlier ones in 'd' stand" said)" = 1 ] &&
            [ -z "$(find d -name "*tmp")" ] && same d/step-00000003 four/step-00000003 && "$PRUN" one.plan --data t.txt --steps 4 --resume d >>said 2>&1 &&
            clean=$((clean + 1)) || { echo "call $k of rank $rank: exit $status"; cat said; ls -R d; }
    done
    check "some of the $calls calls of rank $rank matter" '[ $failed -ge 5 ]'
    check "after each of them the checkpoint before stands" '[ $clean = $failed ]'
done

# H08: all ranks of every layout take part in a save, also where something is half written, and where one fails.  In f32, of which GPUs make sums
# in another order.
dtype=f32
make_plan one.plan -D dtype=f32
plan_many dp.plan 'mesh dp = 4; microbatches = 2'
plan_many four.plan 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp'
plan_many tp.plan 'mesh tp = 4; split heads, ffn, vocab by tp'
plan_many stages.plan 'mesh pp = 2, dp = 2; microbatches = 2; stage before h[0].ln2; shard optimizer by dp'
plan_many three.plan 'mesh pp = 3; devices = [0, 1, 2]; microbatches = 2; stage before h; stage before h[0].ln2'
rm -rf one whole.log
"$PRUN" one.plan --data t.txt --steps 6 --log whole.log 2>said && "$PRUN" one.plan --data t.txt --steps 3 --save one 2>said || cat said
sed -n 4,5p whole.log >rest.log
all_save() {
    local pair x rank
    for pair in dp:0 four:1 tp:2 stages:2 three:2; do        # of layouts, and a rank of each that writes
        x=${pair%:*} rank=${pair#*:}
        rm -rf d l$x && cp -r one d && mkdir -p d/step-00000002.tmp && echo half >d/step-00000002.tmp/weights.safetensors
        check "H08 a save of all ranks ($x, $device)" 'timeout 20 "$PRUN" $x.plan $on --data t.txt --steps 5 --resume d --save d --save-every 1 --log l$x 2>said && [ "$(cat d/latest)" = step-00000005 ] &&
            near_losses l$x rest.log && "$PRUN" one.plan --data t.txt --steps 6 --resume d 2>said' || cat said
        check "H08 a write that fails on rank $rank ends all ($x, $device)" 'FAULT_RANK=$rank FAULT_AT=3 LD_PRELOAD=$preload refused 3 "checkpoint of step 6 was not saved" timeout 10 "$PRUN" $x.plan $on --data t.txt --steps 6 --resume d --save d &&
            [ "$(cat d/latest)" = step-00000005 ] && [ -z "$(find d -name "*tmp")" ]' || cat said
    done
}
near_losses() { paste <(field loss "$1") <(field loss "$2") | awk 'NF != 2 || ($1 / $2 - 1) ^ 2 > 1e-10 { print; bad = 1 } END { exit bad || NR == 0 }'; }
on_devices all_save
