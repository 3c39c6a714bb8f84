# L01: killed at any call of a save, the run resumes from a complete checkpoint and
# its next loss is that of the uninterrupted run.
. "$TESTS/run/lib.bash"
make_small p.plan
prun=$RELEASE/prun preload=$RELEASE/preload/fault.so
"$prun" p.plan --data random --steps 4 --log whole.log 2>err || exit 1

# The second checkpoint of a run is the one that is hit.
FAULT_COUNT=count FAULT_SKIP=1 LD_PRELOAD=$preload "$prun" p.plan --data random --steps 2 --save all --save-every 1 2>>err || exit 1
calls=$(cat count)
check "a save makes some 40 calls that change files" '[ "$calls" -ge 20 ] && [ "$calls" -le 60 ]'

killed=0 resumed=0 exact=0 named=0 tmp=0
for ((k = 1; k <= calls; k++)); do
    rm -rf d
    (FAULT_AT=$k FAULT_HOW=kill FAULT_SKIP=1 LD_PRELOAD=$preload "$prun" p.plan --data random --steps 2 --save d --save-every 1; exit $?) >/dev/null 2>&1
    [ $? -eq 137 ] && killed=$((killed + 1))
    left=$(cd d && ls -d step-*.tmp 2>/dev/null)
    "$prun" p.plan --data random --steps 4 --resume d --save d --save-every 1 --keep 9 --log d.log 2>said || continue
    resumed=$((resumed + 1))
    figures d.log | cmp -s - <(figures whole.log | tail -n "$(wc -l <d.log)") && exact=$((exact + 1)) || cat said d.log
    [ -z "$left" ] || { tmp=$((tmp + 1)); grep -q "ignoring 'd/$left', which was never completed" said && named=$((named + 1)); }
    rm -f d.log
    [ -z "$(find d -name "*tmp")" ] || echo "not ok leftovers: $(find d -name "*tmp")"
done
check "each of the $calls calls was hit" '[ $killed -eq $calls ]'
check "each time a complete checkpoint was found" '[ $resumed -eq $calls ]'
check "each time the next losses were those of the uninterrupted run" '[ $exact -eq $calls ]'
check "what was half written was named" '[ $tmp -gt 5 ] && [ $named -eq $tmp ]'
