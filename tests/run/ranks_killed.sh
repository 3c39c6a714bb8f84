# L01, H06: kill -9 of each rank and of prun itself, in turn, at MOMENTS random moments of
# runs that save after every step, every other moment at a random call of a save.  Each time
# the run ends soon and says why, nothing of it is left alive, and the next run goes on from
# a complete checkpoint; at the end the numbers are those of a run that nobody disturbed.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
MOMENTS=${MOMENTS:-20} SEED=${SEED:-1}
echo "seed $SEED"
RANDOM=$SEED
make_text t.txt 2000
make_plans

# Whoever was killed is named; when prun was, all ranks say so.
told() {
    if [ $victim = prun ]; then
        [ $status = 137 ] && [ "$(grep -c "ends: prun, which started it, is gone" said)" = 4 ]
    else
        [ $status = 3 ] && once "error: rank" && says "error: rank $victim was killed by SIGKILL"
    fi || { echo "status $status"; cat said; return 1; }
}

# ---- other layouts ----

# Two more steps can be taken under each of them; their losses are looked at in the end.
elsewhere() {
    local plan
    for plan in one tensors stages; do
        "$PRUN" $plan.plan --device $device --data t.txt --resume "$1" --steps $(($(latest "$1") + 2)) --log "$1.$plan.$number" >said 2>&1 || { cat said; return 1; }
    done
}

# close FILE FILE: losses agree to 1e-10, in f32 to 1e-4.
close() { paste <(field loss "$1") <(field loss "$2") | awk -v limit=$([ $dtype = f64 ] && echo 1e-10 || echo 1e-4) 'NF != 2 || ($1 - $2) ^ 2 > limit ^ 2 { print; bad = 1 } END { exit bad || NR == 0 }'; }

# those_of LOG: the same steps of the undisturbed run.
those_of() { grep '"step"' whole.log | sed -n "$(field step "$1" | head -n 1),$(last_step "$1")p"; }

all_close() {
    local log
    for log in "$1".*.[0-9]*; do close "$log" <(those_of "$log") || return 1; done
}

# ---- moments ----

# at_a_call PLAN: kill at a call of the victim's, or, for prun, of any rank's.
at_a_call() {
    local how=kill rank=$victim not=none
    [ $victim != prun ] || { how=parent; rank=$((RANDOM % 4)); }
    [ $((number % 4)) != 0 ] || not=pwrite
    FAULT_NOT=$not go_on_to "$1" $rank $((1 + RANDOM % calls[$rank,$not])) $how || return 1
    when="before rank $rank's $hit, in a save"
}

# at_a_time PLAN: kill at any time once steps are taken.
at_a_time() {
    local ms
    go_on "$1" || return 1
    ms=$(printf %03d $((RANDOM % 100)))
    sleep 0.$ms
    ranks[4]=$pid
    kill -KILL "${ranks[${victim/prun/4}]}"
    when="$ms ms after step $((before + 1))"
}

was_in_save() { [ -n "$(find "$1" -name '*tmp')" ] || grep -q "was not saved" said; }

# moment PLAN: one of them, and all that must hold after it.
moment() {
    local before
    before=$(latest "$1")
    if [ $((number % 2)) = 0 ]; then at_a_call "$1"; else at_a_time "$1"; fi || { cat said; return 1; }
    ends_within 10000 || return 1
    [[ $when = *save ]] || ! was_in_save "$1" || when="$when, in a save"
    [[ $when != *save ]] || inside=$((inside + 1))
    told && in_order "$1" "$before" && { [ $((number % 4)) != 3 ] || elsewhere "$1"; }
}

# chain PLAN FIRST: half of the moments.
chain() {
    local plan=$1 bad
    count_calls "$plan"
    for ((number = $2; number < $2 + MOMENTS / 2; number++)); do
        victim=$((number % 5))
        [ $victim != 4 ] || victim=prun
        when=never
        moment "$plan"
        bad=$?
        done=$((done + 1))
        check "moment $((number + 1)), $plan: ${victim/[0-9]/rank &} killed $when" '[ $bad = 0 ]'
    done
    undisturbed "$plan"
    check "$plan: other layouts went on from there" 'all_close $plan'
}

# Stopped while the reporter syncs the last file of tensors, and killed when the checkpoint
# stands: it did not come to know of it.
cp tensors.plan last.plan
(train last last 1) || cat said
FAULT_PATH=/.moments FAULT_NOT=pwrite go_on_to last 0 2 pause
find_ranks
kill -STOP "${ranks[3]}"
rm hit
wait_until '[ "$(latest last)" = 2 ]'
kill -KILL "${ranks[3]}"
victim=3
check "a rank lost at the very end of a save: nobody says that it was not saved" '[[ $hit = *fsync* ]] && ends && told && ! grep "not saved" said'

inside=0 done=0
chain tensors 0
chain stages $((MOMENTS / 2))
check "of $done moments $inside were in a save: at least a third" '[ $done = $MOMENTS ] && [ $((3 * inside)) -ge $MOMENTS ]'
