# Ranks that communicate beside computing: the same bits as in the order of the program, whatever else a run
# does; and the same ends, when a rank dies or is stopped in the middle of both.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
make_text t.txt 2000
make_text e.txt 2020

# beside PLAN: the same, its devices with a thread that communicates.
beside() { sed -E 's/^( +)threads( +)= 1$/&\n\1comm_threads = 1/' "$1"; }

# plan NAME LAYERS RULES
plan() {
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers="$2" --with "$3" -o "$1.plan" >/dev/null || exit 2
    beside "$1.plan" >"$1.beside.plan"
}
plan tensors 1 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp'
plan stages 2 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]'
plan shards 2 'mesh dp = 4; microbatches = 2; shard optimizer by dp'

# run NAME PLAN OPTION...: with all that a run can do; what it leaves is NAME's.
run() {
    local name=$1 plan=$2
    shift 2
    "$PRUN" "$plan" --data t.txt --eval e.txt --eval-every 2 --steps 4 --log "$name.log" --save "$name.save" --save-every 2 \
        --dump grads@2="$name.grads" --dump "h[0].add[1]@3=$name.value" --trace "$name.json" "$@" 2>"$name.said" || { cat "$name.said"; return 1; }
}
# alike NAME NAME: losses, norms, checkpoints and dumps, bit for bit.
alike() {
    [ "$(figures "$1.log")" = "$(figures "$2.log")" ] && same "$1.save/step-00000004" "$2.save/step-00000004" && cmp "$1.grads" "$2.grads" && cmp "$1.value" "$2.value"
}
for layout in tensors stages shards; do
    check "$layout: the bits of the program's order" "run $layout $layout.plan && run $layout.beside $layout.beside.plan && alike $layout $layout.beside"
    check "$layout: as threads too" "run $layout.threads $layout.beside.plan --ranks threads && alike $layout $layout.threads"
done
check "the plan says it, and is canonical when it is written again" '"$RELEASE/pplan" plan stages.beside.plan -o again.plan >/dev/null && grep -qE "^ +comm_threads = 1$" again.plan && "$RELEASE/pplan" plan again.plan -o twice.plan >/dev/null && cmp again.plan twice.plan'
check "the end names communication by axis, exposed and hidden" 'grep -qE "; exposed communication over dp [0-9.]+ [mu]?s \(predicted .*; hidden communication over dp [0-9.]+ [mu]?s \(predicted" tensors.beside.said && grep -q "; exposed communication over tp" tensors.beside.said &&
    grep -q "; exposed communication over dp" tensors.said && ! grep -q hidden tensors.said'
check "a run goes on from a checkpoint of the other way" '"$PRUN" stages.plan --data t.txt --steps 6 --resume stages.beside.save/step-00000004 --log a.log 2>said && "$PRUN" stages.beside.plan --data t.txt --steps 6 --resume stages.save/step-00000004 --log b.log 2>said && [ "$(figures a.log)" = "$(figures b.log)" ]' || cat said

# start PLAN OPTION...: a long run in the background; returns when it has done two steps.
start() {
    local plan=$TMP/$1
    shift
    rm -f l
    "$PRUN" "$plan" --data "$TMP/t.txt" --steps 1000000 --log l "$@" >said 2>&1 &
    pid=$!
    wait_until '[ $(cat l 2>/dev/null | grep -c step) -ge 2 ]' || cat said
    find_ranks
}
for layout in tensors stages; do
    start $layout.beside.plan
    kill -TERM $pid
    check "$layout: SIGTERM: the step is finished and the status is 0" 'ends && [ $status = 0 ] && once "stopped as asked"' || cat said
    start $layout.beside.plan
    kill -STOP "${ranks[2]}"
    wait_until '[[ $(states 0 1 3; sleep 0.1; states 0 1 3) = SSSSSS ]]'
    kill -KILL "${ranks[2]}"
    check "$layout: a killed rank ends the run, and who waited says for what" 'ends && [ $status = 3 ] && once "error:" && says "error: rank 2 was killed by SIGKILL, at instruction [0-9]+" && says "note: rank [0-9], at instruction [0-9]+, waits for rank 2 in "' || cat said
    start $layout.beside.plan
    kill -STOP "${ranks[1]}"
    check "$layout: a stopped rank ends the run" 'ends && [ $status = 3 ] && once "error:" && says "error: rank 1 was stopped by a signal, [56].[0-9] s ago"' || cat said
done
for i in $(seq 8); do
    "$PRUN" "$TMP/tensors.beside.plan" --data "$TMP/t.txt" --steps 1000000 >said 2>&1 &
    pid=$!
    sleep 0.0$((RANDOM % 90 + 10))
    ranks=($(children $pid | sort -n))
    kill -KILL "${ranks[RANDOM % 4]:-$pid}" 2>/dev/null
    if ! ends; then echo "not ok a run ends at any moment of a death"; exit; fi
done
echo "ok a run ends at any moment of a death"
