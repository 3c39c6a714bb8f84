# hosted.bash -- tests of ranks that another program starts, whichever it is; a script sources it after lib.bash and says
# who that is: $by, $variable, which holds a rank's number, and $start, which is followed by a number of ranks and a command.
PRUN=$RELEASE/prun

# rank_process RANK: of the run whose command line names a file of this folder.
rank_process() {
    local f
    for f in /proc/[0-9]*; do
        [ "$(cat "$f/comm" 2>/dev/null)" = prun ] && tr '\0' ' ' 2>/dev/null <"$f/cmdline" | grep -qF "$TMP/" || continue
        tr '\0' '\n' 2>/dev/null <"$f/environ" | grep -qx "$variable=$1" && echo "${f#/proc/}"
    done
}
gone() { wait_until '[ -z "$(rank_process 0)$(rank_process 1)$(rank_process 2)$(rank_process 3)" ]'; }

once() { [ "$(grep -cE "$1" said)" = 1 ] || { echo "not once: $1"; cat said; return 1; }; }
says() { grep -qE -- "$1" said || { echo "not said: $1"; cat said; return 1; }; }
never() { ! grep -E -- "$1" said; }

# make_plans: of four ranks two, and of one.
make_plans() {
    make_text t.txt 2000
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp' -o tensors.plan >/dev/null
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]' -o stages.plan >/dev/null
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=2 -o one.plan >/dev/null
    plan=$TMP/tensors.plan data="--data $TMP/t.txt"
}

# ---- as processes do ----

# run NAME COMMAND...: with all that is written.
run() {
    local name=$1
    shift
    timeout 60 "$@" "$PRUN" - $data --eval t.txt --eval-every 2 --steps 4 --log $name.log --save $name --save-every 2 --dump weights@0=$name.start --dump grads@2=$name.grads \
        --trace $name.json <"$plan" >said 2>&1
}
events() { grep -o '"pid": [0-9]*, "tid": [0-9]*, .*"name"' "$1" | sed -E 's/"ts.*//' | sort | uniq -c; }

as_processes() {
    run near && cp said near.said
    check "a plan from standard input, a log, checkpoints, dumps: as by processes" 'run far $start 4 && [ "$(figures near.log)" = "$(figures far.log)" ] && same near/step-00000004 far/step-00000004 && cmp near.start far.start && cmp near.grads far.grads || { cat said; false; }'
    check "one rank speaks" 'once "^trained: step 4 of 4" && once "^memory: 4 ranks" && once "^trace:"'
    check "a trace has the same events" 'cmp <(events near.json) <(events far.json) && [ "$(events far.json | wc -l)" -ge 4 ]'
    check "what was saved is resumed" 'timeout 60 $start 4 "$PRUN" "$plan" $data --resume far --save far --steps 6 --log far.log >said 2>&1 && "$PRUN" "$plan" $data --resume near --save near --steps 6 --log near.log 2>/dev/null && same near/step-00000006 far/step-00000006 && once "^resumed"'
}

# ---- how it ends ----

limit="timeout 60"
# begin OPTION...: in the background, until it takes steps.
begin() {
    rm -rf b.log said b
    $limit $start 4 "$PRUN" "$plan" $data --steps 1000000 --log b.log --save b "$@" >said 2>&1 &
    pid=$!
    wait_until '[ -s b.log ] && [ "$(wc -l <b.log)" -gt 3 ]'
}
# ends_within SECONDS
ends_within() {
    local began=$SECONDS
    wait $pid
    status=$?
    [ $((SECONDS - began)) -le "$1" ] && gone || { echo "after $((SECONDS - began)) s"; return 1; }
}

# A rank that was stopped is killed; by torchrun's status it is the first.
lost_ranks() {
    local victim
    begin "$@"
    kill -KILL "$(rank_process 2)"
    check "a killed rank: who, where, and what the others wait for" 'ends_within 10 && [ $status != 0 ] && once "error: rank 2 died; .*, at instruction" && says "^note: rank [013], at instruction [0-9]+, waits for rank [0-3] in" && says "^note: instruction [0-9]+ of rank 2 is" && once "^error: rank"'
    for victim in 2 0; do
        begin "$@"
        kill -STOP "$(rank_process $victim)"
        check "a stopped rank, $victim" 'ends_within 12 && [[ $by$status = *3 || $by$status = torchrun137 ]] && once "error: rank $victim has not been heard of for 5.* s: it was stopped" && says "^note: rank [0-3], at instruction [0-9]+, waits for rank $victim in" && once "^error: rank"'
    done
    begin --timeout 2 "$@"
    kill -STOP "$(rank_process 1)"
    check "a stopped rank, with --timeout 2" 'ends_within 8 && once "error: rank 1 has not been heard of for 2.* s"'
}

# asked_to_end SECONDS OPTION...: whoever started it is.
asked_to_end() {
    local seconds=$1
    shift
    limit=                                           # timeout would ask twice
    begin "$@"
    kill -TERM $pid
    check "SIGTERM: the step is finished and saved" 'ends_within $seconds && once "^stopped as asked; saved" && [ "$(tail -n 1 b.log | sed -E "s/.*\"step\": ([0-9]*),.*/\1/")" = "$((10#$(sed s/step-// b/latest)))" ] && never "^error:"'
}
