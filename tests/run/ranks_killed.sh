# L01, H06: kill -9 of each rank and of prun itself, in turn, at MOMENTS random moments of
# runs that save after every step, every other moment at a random call of a save.  Each time
# the run ends soon and says why, nothing of it is left alive, and the next run goes on from
# a complete checkpoint; at the end the numbers are those of a run that nobody disturbed.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
MOMENTS=${MOMENTS:-20} SEED=${SEED:-1}
echo "seed $SEED"
RANDOM=$SEED
preload=$RELEASE/preload/fault.so
long=1000000                                         # steps: until it is killed
make_text t.txt 2000
plan_two() { "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c "$2" -D layers=2 -D dtype=f64 --with "$3" -o "$1" >/dev/null || exit 2; }
plan_two one.plan laptop1 'microbatches = 2'
# Rank 0 tells of the first, rank 2 of the second; each rank has moments of its own.
plan_two tensors.plan laptop4 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp'
plan_two stages.plan laptop4 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp'

# train PLAN DIR STEPS OPTION...: saving into DIR after each step, with its log in DIR.log.
train() {
    local plan=$1 dir=$2 steps=$3
    shift 3
    exec "$PRUN" "$TMP/$plan.plan" --data "$TMP/t.txt" --save "$TMP/$dir" --save-every 1 --log "$TMP/$dir.log" --steps "$steps" "$@" >said 2>&1
}

# ---- what must hold after each moment ----

latest() { echo $((10#$(sed 's/step-//' "$1/latest"))); }
last_step() { field step "$1" | tail -n 1; }
now() { echo $((${EPOCHREALTIME/./} / 1000)); }

# Whoever was killed is named; when prun was, all ranks say so.
told() {
    if [ $victim = prun ]; then
        [ $status = 137 ] && [ "$(grep -c "ends: prun, which started it, is gone" said)" = 4 ]
    else
        [ $status = 3 ] && once "error: rank" && says "error: rank $victim was killed by SIGKILL"
    fi || { echo "status $status"; cat said; return 1; }
}

# The marker names a whole checkpoint, that of the last step in the log or the one before,
# and none before $2; whoever says that a step was not saved is right; and there is nothing
# that prun does not know.
in_order() {
    local dir=$1 step strange files
    step=$(latest "$dir")
    strange=$(cd "$dir" && ls -A | grep -vE '^(lock|latest|\.latest\.[0-9.]*tmp|step-[0-9]{8}(\.tmp)?)$')
    [ -z "$strange" ] || { echo "strange: $strange"; return 1; }
    [ "$step" -ge "$2" ] && [ "$step" -ge $(($(last_step "$dir.log") - 1)) ] || { echo "saved: $step, after $2; the log has $(last_step "$dir.log")"; return 1; }
    ! grep -q "checkpoint of step $step was not saved" said || { cat said; return 1; }
    files=$(ls -A "$dir/$(cat "$dir/latest")" | tr '\n' ' ')
    [ "$files" = "moments.safetensors state.json weights.safetensors " ] || { echo "step $step has: $files"; return 1; }
}

# Under other layouts two more steps can be taken; their losses are looked at in the end.
elsewhere() {
    local plan
    for plan in one tensors stages; do
        "$PRUN" $plan.plan --data t.txt --resume "$1" --steps $(($(latest "$1") + 2)) --log "$1.$plan.$number" >said 2>&1 || { cat said; return 1; }
    done
}

# close FILE FILE: losses agree to 1e-10.
close() { paste <(field loss "$1") <(field loss "$2") | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-20 { print; bad = 1 } END { exit bad || NR == 0 }'; }

# those_of LOG: the same steps of the undisturbed run.
those_of() { grep '"step"' whole.log | sed -n "$(field step "$1" | head -n 1),$(last_step "$1")p"; }

# all_close DIR: what was taken under other layouts.
all_close() {
    local log
    for log in "$1".*.[0-9]*; do close "$log" <(those_of "$log") || return 1; done
}

# ---- moments ----

# count_calls PLAN: how many calls of each rank change files in the first two saves; and
# without those that only put bytes, which are many.
count_calls() {
    local not rank
    for not in none pwrite; do
        rm -rf count.*
        (FAULT_RANK=each FAULT_NOT=$not FAULT_COUNT=$TMP/count LD_PRELOAD=$preload train "$1" count.dir 2) || cat said
        for rank in 0 1 2 3; do calls[$rank,$not]=$(cat count.$rank); done
    done
}

# at_a_call PLAN: kill at a call of the victim's, or, for prun, of any rank's.
at_a_call() {
    local how=kill rank=$victim not=none
    [ $victim != prun ] || { how=parent; rank=$((RANDOM % 4)); }
    [ $((number % 4)) != 0 ] || not=pwrite
    (FAULT_RANK=$rank FAULT_AT=$((1 + RANDOM % calls[$rank,$not])) FAULT_NOT=$not FAULT_HOW=$how FAULT_SAID=$TMP/hit LD_PRELOAD=$preload \
        train "$1" "$1" $long --resume "$TMP/$1") &
    pid=$!
    wait_until '[ -s hit ]' || return 1
    when="before rank $rank's $(sed -E "s| $TMP/$1/?| |; s/\.[0-9]+\.[0-9]+\.tmp//" hit)"
}

# at_a_time PLAN: kill at any time once steps are taken.
at_a_time() {
    local dir=$1 from ms
    from=$(latest "$dir")
    (train "$1" "$1" $long --resume "$TMP/$1") &
    pid=$!
    wait_until 'grep -qs "^resumed" said && [ "$(last_step "$dir.log")" -gt "$from" ]' || return 1
    find_ranks
    ranks[4]=$pid
    ms=$(printf %03d $((RANDOM % 100)))
    sleep 0.$ms
    kill -KILL "${ranks[${victim/prun/4}]}"
    when="$ms ms after step $((from + 1))"
}

# was_in_save DIR: seen afterwards.
was_in_save() { [ -n "$(find "$1" -name '*tmp')" ] || grep -q "was not saved" said; }

# moment PLAN: one of them, and all that must hold after it.
moment() {
    local began before
    before=$(latest "$1")
    rm -f hit said
    if [ $((number % 2)) = 0 ]; then at_a_call "$1"; else at_a_time "$1"; fi || { cat said; return 1; }
    began=$(now)
    ends || return 1
    [ $(($(now) - began)) -lt 10000 ] || { echo "it took $(($(now) - began)) ms"; return 1; }
    [ ! -e hit ] && ! was_in_save "$1" || { inside=$((inside + 1)); when="$when, in a save"; }
    told && in_order "$1" "$before" && { [ $((number % 4)) != 3 ] || elsewhere "$1"; }
}

# chain PLAN FIRST: half of the moments, each run going on where the one before was killed.
chain() {
    local plan=$1 bad
    (train "$plan" "$plan" 1) || cat said
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
    steps=$(($(latest "$plan") + 3))
    (train "$plan" "$plan" "$steps" --resume "$TMP/$plan") || cat said
    "$PRUN" "$plan.plan" --data t.txt --save whole --log whole.log --steps $steps >said 2>&1 || cat said
    check "$plan: $steps steps, each once, are those of a run that nobody disturbed" 'cmp <(figures $plan.log) <(figures whole.log)'
    check "$plan: so are weights and moments, and nothing else is left" 'same $plan/$(cat $plan/latest) whole/$(cat whole/latest) && [ -z "$(find $plan -name "*tmp")" ]'
    check "$plan: other layouts went on from there" 'all_close $plan'
    rm -r whole whole.log
}

# While the one that ends the save is busy: it goes on, and the checkpoint stands.
(FAULT_RANK=0 FAULT_AT=1 FAULT_PATH=/.latest FAULT_HOW=pause FAULT_SAID=$TMP/hit LD_PRELOAD=$preload train tensors last $long) &
pid=$!
wait_until '[ -s hit ]'
find_ranks
kill -KILL "${ranks[3]}"
victim=3
check "a rank lost while another ends the save: nobody says that it was not saved" 'ends && told && [ "$(latest last)" = 1 ] && ! grep "not saved" said'

declare -A calls
inside=0 done=0
chain tensors 0
chain stages $((MOMENTS / 2))
check "of $done moments $inside were in a save: at least a third" '[ $done = $MOMENTS ] && [ $((3 * inside)) -ge $MOMENTS ]'
