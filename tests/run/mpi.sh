# Ranks that MPI started: what is refused, what only one of them says or is given, files they write together, and how a run ends.
. "$TESTS/run/lib.bash"
. "$TESTS/run/mpi.bash"
make_text t.txt 2000
tensors='mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp; shard optimizer by dp'
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with "$tensors" -o tensors.plan >/dev/null
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]' -o stages.plan >/dev/null
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=2 -o one.plan >/dev/null
plan=$TMP/tensors.plan data="--data $TMP/t.txt"

once() { [ "$(grep -c "$1" said)" = 1 ] || { echo "not once: $1"; cat said; return 1; }; }
says() { grep -qE -- "$1" said || { echo "not said: $1"; cat said; return 1; }; }
never() { ! grep -E -- "$1" said; }
gone() { wait_until '[ -z "$(rank_process 0)$(rank_process 1)$(rank_process 2)$(rank_process 3)" ]'; }

mkdir elsewhere
# ---- what is refused, by one rank ----

check "a number of processes that is not the plan's" 'refused 1 "error: MPI started 3 processes, but the plan has 4 ranks: use '\''mpirun -n 4'\''" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data && once "error:"'
check "a plan of one rank by several processes" 'refused 1 "error: MPI started 2 processes, but the plan has 1 rank" timeout 60 mpirun -n 2 "$PRUN" "$TMP/one.plan" $data && once "error:"'
check "--ranks" 'refused 2 "error: --ranks has no effect on ranks that MPI started" timeout 60 mpirun -n 4 "$PRUN" "$plan" $data --ranks threads && once "error:"'
check "data that are not there" 'refused 1 "absent.txt" timeout 60 mpirun -n 4 "$PRUN" "$plan" --data absent.txt && once "error:"'
check "another plan of as many ranks" 'refused 1 "error: rank 2 has another plan" timeout 60 mpirun -n 2 "$PRUN" "$plan" $data : -n 2 "$PRUN" "$TMP/stages.plan" $data && once "error:"'
check "other options" 'refused 1 "error: rank 3 has another plan" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data --steps 2 : -n 1 "$PRUN" "$plan" $data --steps 3 && once "error:"'
check "another number of ranks in the plan of one" 'refused 1 "error: MPI started 4 processes, but the plan has 1 rank" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data : -n 1 "$PRUN" "$TMP/one.plan" $data && once "error:"'
check "data that one rank does not find" 'refused 1 "error: rank 1 ended" timeout 60 mpirun -n 1 "$PRUN" "$plan" --data t.txt : -wdir / -n 1 "$PRUN" "$plan" --data t.txt : -n 2 "$PRUN" "$plan" --data t.txt && says "t.txt"'
check "no plug-in" 'PRUN_PLUGINS=/absent refused 3 "error: prun was started by MPI, which it cannot use: this prun came without libprun_mpi.so" timeout 60 mpirun -n 1 "$PRUN" "$plan" $data'
check "torchrun with cpu devices" 'RANK=1 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=a MASTER_PORT=1 refused 2 "use '\''mpirun -n 4 prun" "$PRUN" "$plan" $data'
check "srun without MPI" 'SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 refused 2 "srun --mpi=pmix" "$PRUN" "$plan" $data'
check "a save folder that is not the same for all" 'refused 1 "error: --save '\''s'\'': it is not the same folder for all ranks" timeout 60 mpirun -n 2 "$PRUN" "$plan" $data --save s : -wdir "$TMP/elsewhere" -n 2 "$PRUN" "$plan" $data --save s && once "error:"'

# ---- as processes do ----

# run NAME COMMAND...: with all that is written.
run() {
    local name=$1
    shift
    timeout 60 "$@" "$PRUN" - $data --eval t.txt --eval-every 2 --steps 4 --log $name.log --save $name --save-every 2 --dump weights@0=$name.start --dump grads@2=$name.grads \
        --trace $name.json <"$plan" >said 2>&1
}
run near && cp said near.said
check "a plan from standard input, a log, checkpoints, dumps: as by processes" 'run far mpirun -n 4 && [ "$(figures near.log)" = "$(figures far.log)" ] && same near/step-00000004 far/step-00000004 && cmp near.start far.start && cmp near.grads far.grads'
check "one rank speaks" 'once "^trained: step 4 of 4" && once "^memory: 4 ranks" && once "^trace:"'
events() { grep -o '"pid": [0-9]*, "tid": [0-9]*, .*"name"' "$1" | sed -E 's/"ts.*//' | sort | uniq -c; }
check "a trace has the same events" 'cmp <(events near.json) <(events far.json) && [ "$(events far.json | wc -l)" -ge 4 ]'
check "what was saved is resumed" 'timeout 60 mpirun -n 4 "$PRUN" "$plan" $data --resume far --save far --steps 6 --log far.log >said 2>&1 && "$PRUN" "$plan" $data --resume near --save near --steps 6 --log near.log 2>/dev/null && same near/step-00000006 far/step-00000006 && once "^resumed"'
check "a plan of one rank" 'timeout 60 mpirun -n 1 "$PRUN" one.plan $data --steps 2 --log one.log >said 2>&1 && "$PRUN" one.plan $data --steps 2 --log two.log 2>/dev/null && [ "$(figures one.log)" = "$(figures two.log)" ]'

# ---- how it ends ----

limit="timeout 60"
# begin OPTION...: in the background, until it takes steps.
begin() {
    rm -rf b.log said b
    $limit mpirun -n 4 "$PRUN" "$plan" $data --steps 1000000 --log b.log --save b "$@" >said 2>&1 &
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

begin
kill -KILL "$(rank_process 2)"
check "a killed rank: who, where, and what the others wait for" 'ends_within 10 && [ $status != 0 ] && once "error: rank 2 died; .*, at instruction" && says "^note: rank [013], at instruction [0-9]+, waits for rank [0-3] in" && says "^note: instruction [0-9]+ of rank 2 is" && once "^error: rank"'
for victim in 2 0; do
    begin
    kill -STOP "$(rank_process $victim)"
    check "a stopped rank, $victim" 'ends_within 12 && [ $status = 3 ] && once "error: rank $victim has not been heard of for 5.* s: it was stopped" && says "^note: rank [0-3], at instruction [0-9]+, waits for rank $victim in" && once "^error: rank"'
done
begin --timeout 2
kill -STOP "$(rank_process 1)"
check "a stopped rank, with --timeout 2" 'ends_within 8 && once "error: rank 1 has not been heard of for 2.* s"'
export OMPI_MCA_odls_base_sigkill_timeout=10
limit=                                               # timeout would tell mpirun twice, which is "at once"
begin
kill -TERM $pid                                      # mpirun gives its ranks so many seconds
check "SIGTERM to mpirun: the step is finished and saved" 'ends_within 30 && once "^stopped as asked; saved" && [ "$(tail -n 1 b.log | sed -E "s/.*\"step\": ([0-9]*),.*/\1/")" = "$((10#$(sed s/step-// b/latest)))" ] && never "^error:"'
