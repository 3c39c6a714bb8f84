# Starting, saving and resuming need no more memory than training: the most that is resident, by rank, also where another
# number of ranks goes on.  A second copy of the moments would be seen.
. "$TESTS/run/lib.bash"

# plan_on FILE RULES: a perceptron whose states are nearly all of its memory.
plan_on() {
    "$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop4 -D dtype=f32 -D batch=8 -D pixel=2048 -D hidden=2048 --with "$2" -o "$1" >said || cat said
}

# most FILE: MiB of the rank that needed most, of the run that was last.
most() { cat report report.* 2>/dev/null | awk '$1 == "peak_kib" && $2 > n { n = $2 } END { print int(n / 1024) }'; }

train() {                            # PLAN OPTION...
    rm -f report report.*
    MEMORY_REPORT=report LD_PRELOAD=$RELEASE/preload/memory.so "$RELEASE/prun" "$@" $on --data random >/dev/null 2>err || cat err
}
plan_on one.plan 'devices = [0]'
plan_on two.plan 'devices = [0, 1]; mesh dp = 2; shard optimizer by dp'
plan_on four.plan 'mesh dp = 2, tp = 2; split hidden by tp'
# Memory of the emulator's devices is the process's.
resuming() {
    local p saving file resumed
    local -A plain
    for p in one two four; do
        train $p.plan --steps 2
        plain[$p]=$(most)
    done
    train two.plan --steps 2 --save saved.$device
    saving=$(most)
    # The moments are one value a weight, as large as the file they are read from, whose pages are the system's to take back.
    file=$(($(stat -L -c %s saved.$device/*/moments.safetensors | sort -n | tail -n 1) >> 20))
    check "the run is large enough to see a copy ($device)" '[ $file -ge 16 ] && [ ${plain[one]} -gt $((3 * file)) ] || ! echo "$file, ${plain[one]} MiB"'
    check "saving ($device)" '[ $saving -le $((plain[two] + file / 2)) ] || ! echo "$saving MiB, ${plain[two]} without"'
    for p in one two four; do
        train $p.plan --steps 4 --resume saved.$device
        resumed=$(most)
        check "resuming with the ranks of $p.plan ($device)" '[ "$resumed" -gt 0 ] && [ "$resumed" -le $((plain[$p] + file + file / 2)) ] || ! echo "$resumed MiB, ${plain[$p]} without"'
    done
}
on_devices resuming
