# L02: no room on one rank of four, or on all of them, for weights, moments, state or marker:
# the run ends and says so, the checkpoint before stands, and the run goes on from it.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
make_text t.txt 2000
make_plans
for plan in tensors stages; do (train $plan $plan 1) || cat said; done

# full PLAN FILE RANK ROOM: save once more, with no room for what RANK (each: any) puts into
# the file but for its first ROOM bytes.
full() {
    local plan=$1 step
    step=$(($(latest $plan) + 1))
    (FAULT_FULL=/.$2 FAULT_RANK=$3 FAULT_ROOM=$4 LD_PRELOAD=$fault train $plan $plan $((step + 3)) --resume "$TMP/$plan")
    status=$?
    [ $status = 3 ] && ! alive && says "error: cannot write '.*/$plan(/step-[0-9]+.tmp)?/$2[a-z.]*' \([0-9]+ bytes\): No space left on device" &&
        once "error: the checkpoint of step $step was not saved; earlier ones in '$TMP/$plan' stand" && in_order $plan $((step - 1)) && [ "$(latest $plan)" = $((step - 1)) ] &&
        [ -z "$(find $plan -name '*tmp')" ] || { echo "status $status"; cat said; ls -AR $plan; return 1; }
}

# In `tensors` the copies of ranks 2 and 3 are not written, but all ranks have moments of their own.
for room in 0 5000; do
    for rank in each 0 1; do check "no room for weights, $room bytes, ranks: $rank" 'full tensors weights $rank $room'; done
    for rank in each 0 1 2 3; do check "no room for moments, $room bytes, ranks: $rank" 'full tensors moments $rank $room'; done
done
for rank in each 0; do
    check "no room for the state, ranks: $rank" 'full tensors state $rank 100'
    check "no room for the marker, ranks: $rank" 'full tensors latest $rank 0'
done
for file in weights moments state; do
    check "stages: no room for $file" 'full stages $file each 300'
    check "stages: no room for $file of rank 2, which tells of the run" 'full stages $file 2 300'
done
undisturbed stages
undisturbed tensors

# A file system that is full, where a folder of one's own can be made one: room for a
# checkpoint and a half.
own() { unshare -rm sh -c "mkdir -p small && mount -t tmpfs -o size=1000k tmpfs small && $1"; }
if own true 2>/dev/null; then
    cat >small.sh <<END
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
"$PRUN" tensors.plan --data t.txt --save small --save-every 1 --steps 4 >said 2>&1
[ \$? = 3 ] && grep -q "No space left on device" said && once "checkpoint of step 2 was not saved; earlier ones in 'small' stand" &&
    [ -z "\$(find small -name '*tmp')" ] && "$PRUN" tensors.plan --data t.txt --resume small --save there --steps 4 >said 2>&1
END
    check "a file system with room for one and a half" 'own "exec bash small.sh" && same there/step-00000004 whole/step-00000004' || cat said
else
    echo "skip a file system with room for one and a half: this user can mount none"
fi
