# L01 with many ranks: whoever is killed in a save, and whenever, the run goes on from a whole
# checkpoint, with the losses of the run that nobody killed.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
make_text t.txt 2000
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=1 --with 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp' -o four.plan >/dev/null || exit 2
"$PRUN" four.plan --data t.txt --steps 3 --save four 2>said || cat said
"$PRUN" four.plan --data t.txt --steps 6 --resume four --log rest.log 2>said || cat said

# Rank 0 makes the files, rank 1 only adds to them.
preload=$RELEASE/preload/fault.so
save() { rm -rf d && cp -r four d && "$@" "$PRUN" four.plan --data t.txt --steps 4 --resume d --save d --keep 9 >said 2>&1; }
for rank in 0 1; do
    rm -f count
    save env FAULT_RANK=$rank FAULT_COUNT=$TMP/count LD_PRELOAD=$preload || cat said
    calls=$(cat count) killed=0 clean=0
    far=$((1 + calls / 5))
    for ((k = 1; k <= calls; k += k + far < calls - 12 ? far : 2)); do     # the last ones of rank 0 publish
        save env FAULT_RANK=$rank FAULT_AT=$k FAULT_HOW=kill LD_PRELOAD=$preload
        status=$?
        [ $status = 0 ] && continue                   # a call after the last of the run
        killed=$((killed + 1))
        left=$(cat d/latest) && rm -f l
        [ $status = 3 ] && grep -q "error: rank $rank was killed by SIGKILL" said && "$PRUN" four.plan --data t.txt --steps 6 --resume d --save d --log l 2>said && [ -z "$(find d -name "*tmp")" ] &&
            [ "$(figures l)" = "$(figures rest.log | tail -n $((6 - 10#${left#step-})))" ] && clean=$((clean + 1)) || { echo "call $k of rank $rank: exit $status, $left"; cat said; ls -R d; }
    done
    check "L01 rank $rank is killed at some of the $calls calls of its save" '[ $killed -ge 5 ]'
    check "L01 and the run goes on from a whole checkpoint, rank $rank" '[ $clean = $killed ]'
done

# Anyone, prun too, at any moment of a run that saves after every step.
"$PRUN" four.plan --data t.txt --steps 800 --log long.log 2>said || cat said
killed=0 exact=0
for i in $(seq 6); do
    rm -rf d l
    "$PRUN" four.plan --data t.txt --steps 800 --save d --save-every 1 >said 2>&1 &
    pid=$!
    wait_until '[ -e d/latest ]'
    sleep 0.0$((RANDOM % 90 + 10))
    ranks=($pid $(cat "/proc/$pid/task/$pid/children" 2>/dev/null))
    kill -KILL "${ranks[i % ${#ranks[@]}]}" 2>/dev/null
    wait $pid 2>/dev/null
    [ $? = 0 ] && continue
    killed=$((killed + 1))
    flock -w 20 d/lock true || echo "a rank is left"
    step=$((10#$(sed 's/step-//' d/latest)))
    "$PRUN" four.plan --data t.txt --steps $((step + 3)) --resume d --save d --log l 2>said &&
        [ "$(figures l)" = "$(figures long.log | sed -n "$((step + 1)),$((step + 3))p")" ] && exact=$((exact + 1)) || { echo "after step $step"; cat said l; }
done
check "L01 killed at any moment, the run goes on as if it had not been" '[ $killed -ge 4 ] && [ $exact = $killed ]' || echo "$killed killed, $exact exact"
