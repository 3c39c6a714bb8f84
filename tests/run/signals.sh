# No handler of ours runs on a thread that computes: oneDNN's products keep numbers below the end of the stack, where the kernel
# writes when it calls one.  So while ranks train, each signal that is caught is blocked in all their threads, but those of what
# a thread itself did, and but for one thread that only waits.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
make_text t.txt 4000
make_plan one.plan
plan_two four.plan laptop4 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]'

# mask FILE NAME: a set of signals, as a number; bit k is signal k + 1.
mask() { echo $((16#$(sed -nE "s/^$2:\s*//p" "$1"))); }
apart=$((1 << 10 | 1 << 6 | 1 << 3 | 1 << 7 | 1 << 5 | 1 << 31 | 1 << 32))   # SEGV, BUS, ILL, FPE, ABRT; two that the C library keeps for itself

# open_threads PROCESS: how many of its threads may be interrupted by a handler; "main" among them if its first one may.
open_threads() {
    local t n=0
    for t in /proc/"$1"/task/*; do
        [ $(($(mask "$t/status" SigCgt) & ~$(mask "$t/status" SigBlk) & ~apart)) = 0 ] && continue
        n=$((n + 1))
        [ "${t##*/}" != "$1" ] || echo main
    done
    echo $n
}

# run_and_stop PLAN SIGNAL COUNT OPTION...: of each of its ranks so many threads may be interrupted; then it ends as asked.
run_and_stop() {
    local name=$1 signal=$2 allowed=$3 p
    shift 3
    rm -f said "$name.log"
    (exec "$PRUN" "$TMP/$name.plan" --data "$TMP/t.txt" --steps 1000000 --log "$TMP/$name.log" "$@" >said 2>&1) &
    pid=$!
    wait_until '[ "$(cat "$name.log" 2>/dev/null | wc -l)" -ge 3 ]' || return 1
    find_ranks
    [ ${#ranks[@]} != 0 ] || ranks=($pid)
    for p in "${ranks[@]}"; do
        [ "$(open_threads "$p")" = "$allowed" ] || { echo "process $p: $(open_threads "$p")"; kill -KILL $pid; return 1; }
    done
    kill -"$signal" $pid
    ends
    says "stopped as asked"
}
for signal in TERM INT HUP; do
    check "SIG$signal to one rank of two threads" 'run_and_stop one $signal 0'
    check "SIG$signal to ranks that are threads" 'run_and_stop four $signal 0 --ranks threads'
    check "SIG$signal to prun of four ranks" 'run_and_stop four $signal 1'
done

# A closed terminal: what it ends is saved, unless it was told to stay.
goes_on() {
    local name=$1 steps
    rm -f said "$name.log"
    (trap '' HUP; exec "$PRUN" "$TMP/$name.plan" --data "$TMP/t.txt" --steps 1000000 --log "$TMP/$name.log" >said 2>&1) &
    pid=$!
    wait_until '[ "$(cat "$name.log" 2>/dev/null | wc -l)" -ge 3 ]' || { kill -KILL $pid; return 1; }
    find_ranks
    kill -HUP $pid "${ranks[@]}"
    steps=$(wc -l <"$name.log")
    wait_until '[ "$(wc -l <"$name.log")" -ge $((steps + 3)) ]' || { cat said; kill -KILL $pid; return 1; }
    kill -TERM $pid
    ends
    says "stopped as asked"
}
check "SIGHUP under nohup: one rank goes on" 'goes_on one'
check "SIGHUP under nohup: four ranks go on" 'goes_on four'

# closed PLAN: its terminal goes away, with who made it.
closed() {
    local name=$1
    rm -rf said "$name.log" "$name.d"
    script -qec "exec \"$PRUN\" \"$TMP/$name.plan\" --data \"$TMP/t.txt\" --steps 1000000 --log \"$TMP/$name.log\" --save \"$TMP/$name.d\"" /dev/null </dev/null >said 2>&1 &
    pid=$!
    wait_until '[ "$(cat "$name.log" 2>/dev/null | wc -l)" -ge 3 ]' || { kill -KILL $pid; return 1; }
    kill -KILL $pid
    ends
    [ "$(cat "$name.d/latest")" = "$(printf step-%08d "$(field step "$name.log" | tail -n 1)")" ]
}
if command -v script >/dev/null; then
    check "a closed terminal: the step is finished and saved" 'closed one'
    check "a closed terminal: four ranks end alike" 'closed four'
else
    echo "skip a closed terminal: no 'script' to make one"
fi
