# `prun calibrate`, as it is: two runs of about a minute.
# alone: it measures, and refuses a machine that others keep busy
. "$TESTS/run/lib.bash"

# A machine that is too busy is refused, which is no fault of prun's.
busy() { grep -q 'too busy to be measured' said; }

start=$(date +%s)
"$RELEASE/prun" calibrate -o this.pcluster 2>said
status=$?
took=$(($(date +%s) - start))
if [ $status = 3 ] && busy; then
    check "a refused machine leaves no file" '[ -z "$(ls -A . | grep -v said)" ]'
    echo "skip the figures: the machine is too busy"
else
    check "it measures, and says nothing in a pipe" '[ $status = 0 ] && [ ! -s said ]'
    check "within 90 seconds of wall time ($took s)" '[ $took -le 90 ]'
    check "its file is in canonical form" '"$RELEASE/pplan" fmt this.pcluster >fmt && cmp this.pcluster fmt'
    check "plans are made with it" '"$RELEASE/pplan" plan tiny/char_gpt.pmodel -c this.pcluster:this1 -o one.plan >/dev/null 2>said && [ ! -s said ]'
    check "of any number of devices" '"$RELEASE/pplan" plan tiny/char_gpt.pmodel -c this.pcluster:crowd -D devices=4 --with "mesh dp = 4" -o four.plan >/dev/null 2>said'
    check "and run" 'head -c 20000 "$TOP/tests/README.md" /dev/zero >text; "$RELEASE/prun" one.plan --data text --steps 2 2>said'
fi

# Ended while it measures, and with a full disk at the end: what was there stays, and nothing else is there.
echo old >old.pcluster
"$RELEASE/prun" calibrate -o old.pcluster 2>said &
sleep 3
kill -TERM $! && wait $!
check "an interrupted run leaves the old file" '[ "$(cat old.pcluster)" = old ] && [ -z "$(find . -name ".*.tmp")" ]'
FAULT_FULL=old.pcluster FAULT_ROOM=1000 LD_PRELOAD=$RELEASE/preload/fault.so "$RELEASE/prun" calibrate -o old.pcluster 2>said
status=$?
check "a full disk leaves the old file" '[ $status = 3 ] && [ "$(cat old.pcluster)" = old ] && [ -z "$(find . -name ".*.tmp")" ] && { busy || grep -q "cannot write" said; } || ! cat said'
