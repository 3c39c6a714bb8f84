# L02: when any call of a save fails for want of room, the message names path and
# reason, the status is 3, the checkpoint before stands and nothing partial is left.
. "$TESTS/run/lib.bash"
make_small p.plan
prun=$RELEASE/prun preload=$RELEASE/preload/fault.so
FAULT_COUNT=count FAULT_SKIP=1 LD_PRELOAD=$preload "$prun" p.plan --data random --steps 2 --save all --save-every 1 2>err || exit 1
calls=$(cat count)

failed=0 clean=0 good=0
for ((k = 1; k <= calls; k++)); do
    rm -rf d
    FAULT_AT=$k FAULT_SKIP=1 LD_PRELOAD=$preload "$prun" p.plan --data random --steps 2 --save d --save-every 1 >said 2>&1
    status=$?
    [ $status -eq 0 ] && continue    # closing a folder, removing what is old: no harm done
    failed=$((failed + 1))
    [ $status -eq 3 ] && grep -q "error: cannot .*'d.*No space left" said && grep -q "checkpoint of step 2 was not saved; earlier ones in 'd' stand" said &&
        [ -z "$(find d -name "*tmp")" ] && clean=$((clean + 1)) || { echo "call $k: exit $status"; cat said; ls -R d; }
    "$prun" p.plan --data random --steps 3 --resume d 2>>err && good=$((good + 1))
done
check "at least 12 of the $calls calls matter" '[ $failed -ge 12 ]'
check "each failure is said and leaves nothing partial" '[ $clean -eq $failed ]'
check "each time the checkpoint before can be resumed" '[ $good -eq $failed ]'

# Of the first save no failure may promise an earlier checkpoint, or leave one.
failed=0 honest=0 promised=0
for ((k = 1; k <= calls; k++)); do
    rm -rf d
    FAULT_AT=$k LD_PRELOAD=$preload "$prun" p.plan --data random --steps 1 --save d >said 2>&1 || failed=$((failed + 1))
    ! grep -q "stand" said || { promised=$((promised + 1)); cat said; }
    ! grep -q "was not saved" said || { grep -q "checkpoint of step 1 was not saved; there is none yet in 'd'" said && [ ! -e d/latest ] && honest=$((honest + 1)); }
done
check "the first save that fails promises nothing: $honest of $failed failures" '[ $honest -ge 12 ] && [ $promised = 0 ]'

mkdir ro && touch ro/file
check "a target that is no folder is refused before step 1" 'refused 3 "cannot make folder" "$prun" p.plan --data random --steps 1 --save ro/file --log l && [ ! -e l ]'
# A quota cuts a file off in the middle.
"$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop1 -D batch=4 -D dtype=f32 -o big.plan >/dev/null || exit 2
quota() (ulimit -f 1000; exec "$prun" big.plan --data random --steps 1 --save q)
check "a file cut off in the middle is an error with path and size" 'refused 3 "File too large" quota &&
    grep -q "cannot write .q/step-00000001.tmp/weights.safetensors. (.* bytes)" said && [ ! -e q ]'
mkfifo pipe
: <pipe &
check "a log nobody reads is an error" 'refused 3 "cannot write the log '\''pipe'\'': Broken pipe" "$prun" p.plan --data random --steps 1000000 --log pipe'
check "a log on a full disk is named, once" 'refused 3 "cannot write the log '\''/dev/full'\'': No space left on device" "$prun" p.plan --data random --steps 3 --log /dev/full && [ "$(grep -c "cannot write" said)" = 1 ]'
