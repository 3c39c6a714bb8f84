# ranks.bash -- helpers of the tests of runs of many processes; a script sources it after
# lib.bash.  $pid is the launcher, ${ranks[R]} the process of rank R; `said` holds what was
# said.  A run names its files with their whole paths: by these it is found.
PRUN=$RELEASE/prun

# processes: those of the run, by a file of this folder in their command lines; zombies
# have none.  It starts none itself: many of them would use up process numbers, and with
# them what the shell remembers of the run.
processes() {
    local f words
    for f in /proc/[0-9]*; do
        words=()
        { mapfile -d '' words <"$f/cmdline"; } 2>/dev/null
        [[ "${words[*]}" != *"$TMP/"* ]] || echo "${f#/proc/}"
    done
}
alive() { [ -n "$(processes)" ]; }

# children PROCESS: those that it started.
children() {
    local f line parent
    for f in /proc/[0-9]*/stat; do
        { read -r line <"$f"; } 2>/dev/null || continue
        read -r _ parent _ <<<"${line##*) }"
        [ "$parent" != "$1" ] || echo "${line%% *}"
    done
}

# ends: the run, started with start(), ended, and nothing of it is left.
ends() {
    wait_until '! alive' || { processes; kill -KILL $(processes); return 1; }
    wait $pid 2>/dev/null
    status=$?
}

# find_ranks: their processes, in order; process numbers need not be.
find_ranks() {
    local p n
    ranks=()
    for p in $(children $pid); do
        n=$(tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | sed -nE 's/^PRUN_RANK=([0-9]+),.*/\1/p')
        [ -z "$n" ] || ranks[n]=$p
    done
}

# states RANK...: how they are, as /proc says: R, S, D or T.
states() { for i; do sed 's/.*) //' "/proc/${ranks[i]}/stat" | cut -c1; done | tr -d '\n'; }

says() { grep -qE -- "$1" said || { echo "not said: $1"; cat said; return 1; }; }
once() { [ "$(grep -c "$1" said)" = 1 ] || { echo "not once: $1"; cat said; return 1; }; }

# ---- chains of runs that save after every step, each going on where the one before was ended ----

fault=$RELEASE/preload/fault.so
long=1000000                                         # steps: until somebody ends it

# Plans of what computes them: $device, in $dtype.
device=${device:-cpu} dtype=${dtype:-f64}
plan_two() { "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c "$2" -D layers=2 -D dtype=$dtype --with "$3" -o "$1" >/dev/null || exit 2; }

# make_plans: rank 0 tells of `tensors`, rank 2 of `stages`; each rank has moments of its own
# to write, so each has a part in a save.
make_plans() {
    plan_two one.plan laptop1 'microbatches = 2'
    plan_two tensors.plan laptop4 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp'
    plan_two stages.plan laptop4 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp'
}

# train PLAN DIR STEPS OPTION...: in place of this shell, with its log in DIR.log.
train() {
    local plan=$1 dir=$2 steps=$3
    shift 3
    exec "$PRUN" "$TMP/$plan.plan" --device $device --data "$TMP/t.txt" --save "$TMP/$dir" --save-every 1 --log "$TMP/$dir.log" --steps "$steps" "$@" >said 2>&1
}

# go_on PLAN OPTION...: in the background, from PLAN's folder; returns once it has taken a step.
go_on() {
    local plan=$1 from
    from=$(latest "$plan")
    shift
    rm -f said
    (train "$plan" "$plan" $long --resume "$TMP/$plan" "$@") &
    pid=$!
    wait_until 'grep -qs "^resumed" said && [ "$(last_step "$plan.log")" -gt "$from" ]' && find_ranks
}

# go_on_to PLAN RANK CALL HOW OPTION...: likewise; returns when RANK comes to that CALL, one of
# those that FAULT_NOT leaves.  $call says which it was.
go_on_to() {
    local plan=$1 rank=$2 call=$3 how=$4
    shift 4
    rm -f said hit
    (FAULT_RANK=$rank FAULT_AT=$call FAULT_HOW=$how FAULT_SAID=$TMP/hit LD_PRELOAD=$fault train "$plan" "$plan" $long --resume "$TMP/$plan" "$@") &
    pid=$!
    wait_until '[ -s hit ]' && hit=$(sed -E "s| $TMP/$plan/?| |; s/\.[0-9]+\.[0-9]+\.tmp//" hit)
}

# count_calls PLAN: begin the chain, and count how many calls of each rank change files in
# the first two saves; and without those that only put bytes, which are many:
# ${calls[RANK,none]} and ${calls[RANK,pwrite]}.
declare -A calls
count_calls() {
    local not rank
    for not in none pwrite; do
        rm -rf count.*
        (FAULT_RANK=each FAULT_NOT=$not FAULT_COUNT=$TMP/count LD_PRELOAD=$fault train "$1" count.dir 2) || cat said
        for rank in 0 1 2 3; do calls[$rank,$not]=$(cat count.$rank); done
    done
    (train "$1" "$1" 1) || cat said
}

latest() { echo $((10#$(sed 's/step-//' "$1/latest"))); }
last_step() { field step "$1" | tail -n 1; }
now() { echo $((${EPOCHREALTIME/./} / 1000)); }      # milliseconds

# ends_within MS: the run ended, and nothing of it is left.
ends_within() {
    local began
    began=$(now)
    ends && [ $(($(now) - began)) -lt "$1" ] || { echo "after $(($(now) - began)) ms"; return 1; }
}

# in_order DIR STEP: the marker names a whole checkpoint, that of the last step in the log or
# the one before, and none before STEP; whoever says that a step was not saved is right; and
# there is nothing that prun does not know.
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

# undisturbed PLAN: after three more steps all is as in `whole`, a run that nobody ended.
undisturbed() {
    local plan=$1 steps
    steps=$(($(latest "$1") + 3))
    rm -rf whole whole.log
    (train "$plan" "$plan" $steps --resume "$TMP/$plan") || cat said
    "$PRUN" "$plan.plan" --device $device --data t.txt --save whole --log whole.log --steps $steps >said 2>&1 || cat said
    check "$plan: $steps steps, each once, are those of a run that nobody ended" 'cmp <(figures $plan.log) <(figures whole.log)'
    check "$plan: so are weights and moments, and nothing else is left" 'same $plan/$(cat $plan/latest) whole/$(cat whole/latest) && [ -z "$(find $plan -name "*tmp")" ]'
}
