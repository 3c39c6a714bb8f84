# Many ranks: the same numbers as on one; and what becomes of a run when a rank dies, is
# stopped or fails, or when prun itself dies.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
make_plan one.plan
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=1 \
    --with 'mesh dp = 2, tp = 2; microbatches = 2; split heads, ffn, vocab by tp; split seq by tp' -o "$TMP/four.plan" >/dev/null || exit 2
four=$TMP/four.plan
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]' -o stages.plan >/dev/null || exit 2
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=2 -o two.plan >/dev/null || exit 2
make_text t.txt 2000
make_text e.txt 2020                                  # 126 samples: the last micro-batch of 4 has 2

# close FILE FILE: losses and norms agree to 1e-5.
close() {
    paste <(grep -oE '"(loss|grad_norm|eval_loss)": [^,}]*' "$1") <(grep -oE '"(loss|grad_norm|eval_loss)": [^,}]*' "$2") |
        awk 'NF != 4 || $1 != $3 || ($2 - $4) ^ 2 > (1e-5 * $2) ^ 2 { print; bad = 1 } END { exit bad || NR == 0 }'
}

# steps: how many the log has.
steps() { cat l 2>/dev/null | grep -c '"step"'; }

# start OPTION...: a long run in the background; returns when it has done two steps.
start() {
    rm -f l
    "$PRUN" "$four" --data "$TMP/t.txt" --steps 1000000 --log l "$@" >said 2>&1 &
    pid=$!
    wait_until '[ $(steps) -ge 2 ]' || cat said
    find_ranks
}

# stop_one RANK OTHER...: stop it, until the others wait for it and sleep.
stop_one() {
    kill -STOP "${ranks[$1]}"
    shift
    others=$*
    wait_until '[[ $(states $others; sleep 0.1; states $others) = SSSSSS ]]'
}

# ---- numbers ----

"$PRUN" one.plan --data t.txt --eval e.txt --steps 4 --log one.log 2>/dev/null
check "C04 ranks as processes train and evaluate like one" '"$PRUN" "$four" --data t.txt --eval e.txt --steps 4 --log four.log 2>said && close one.log four.log && [ "$(field step four.log | wc -l)" = 5 ]' || cat said
check "their run is told by one of them" 'once "held-out loss" && once "trained: step 4 of 4" && once "memory: 4 ranks" && once "time: a step" && once "what is trained is not kept" && [ "$(wc -l <said)" = 5 ]'
check "ranks as threads train like those" 'prun "$four" --data t.txt --eval e.txt --steps 4 --log threads.log --ranks threads 2>said && close one.log threads.log' || cat said
check "and repeat themselves" '"$PRUN" "$four" --data t.txt --eval e.txt --steps 4 --log again.log 2>said && [ "$(figures four.log)" = "$(figures again.log)" ]'
check "a plan from standard input reaches all ranks" '"$PRUN" - --data t.txt --eval e.txt --steps 4 --log stdin.log <"$four" 2>said && [ "$(figures four.log)" = "$(figures stdin.log)" ]'
grown=$(sed -nE 's/^memory: 4 ranks: .* grew by ([0-9.]+) MB in all$/\1/p' said)
"$PRUN" two.plan --data t.txt --eval e.txt --steps 4 --log two.log 2>/dev/null
check "stages train and evaluate like one rank" '"$PRUN" stages.plan --data t.txt --eval e.txt --steps 4 --log stages.log 2>stages.said && close two.log stages.log && [ "$(field step stages.log | wc -l)" = 5 ]' || cat stages.said
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=6 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[5]' -o uneven.plan >/dev/null || exit 2
for ranks in processes threads; do
    check "the stage that computes most tells of the time: $ranks" '"$PRUN" uneven.plan --data t.txt --steps 5 --ranks $ranks 2>said && once "time: a step of rank 0 (stage 0, the busiest), median of 3, " && once "time:"' || cat said
done
check "memory grows, and by no more than the reserve of four ranks" 'awk -v mb="$grown" "BEGIN { exit !(mb > 1 && mb < 4 * 268) }"' || cat said

# ---- ends that all see ----

check "D04 a loss that is no number is seen by all alike" 'refused 1 "not a number to go on with" "$PRUN" "$four" --data t.txt --steps 4 --set lr=1e8 && once "error:" && ! alive'
start
kill -TERM $pid
check "M01 SIGTERM: the step is finished and the status is 0" 'ends && [ $status = 0 ] && once "stopped as asked"' || { echo "status $status"; cat said; }
# One first, so that the others wait for it, and go on waiting after a pause that is longer than the limit.
start --timeout 5
stop_one 1 0 2 3
kill -STOP $pid "${ranks[@]}"
wait_until '[ $(states 0 2 3) = TTT ]'
sleep 6
kill -CONT $pid "${ranks[0]}" "${ranks[2]}" "${ranks[3]}"
sleep 0.2
before=$(steps)
kill -CONT "${ranks[1]}"
check "a job that is stopped as a whole goes on" 'wait_until "[ \$(steps) -gt $((before + 2)) ]" && kill -TERM $pid && ends && [ $status = 0 ]' || cat said

# ---- ends that come from outside ----

start
stop_one 2 0 1 3
kill -KILL "${ranks[2]}"
check "H06 a killed rank ends the run" 'ends && [ $status = 3 ] && once "error:"'
check "the message names it, its instruction, and what the others waited for" 'says "error: rank 2 was killed by SIGKILL, at instruction [0-9]+" && says "note: rank [0-9], at instruction [0-9]+, waits for rank 2 in " && says "note: instruction [0-9]+ of rank 2 is [a-z_]+ '"'"'"'
start
kill -STOP "${ranks[1]}"
check "a stopped rank ends the run" 'ends && [ $status = 3 ] && once "error:" && says "error: rank 1 was stopped by a signal, [56].[0-9] s ago"'
start --timeout 1
kill -STOP "${ranks[0]}"
check "and sooner with --timeout" 'ends && [ $status = 3 ] && once "error:" && says "error: rank 0 (was stopped by a signal|made no progress for|waits for ranks that wait for it, since)[^0-9]*[12].[0-9] s"'
start
kill -KILL $pid
check "ranks end when prun does" 'ends && [ "$(grep -c "which started it, is gone" said)" = 4 ]' || cat said
start
: >t.txt
check "data that become short end the run" 'ends && [ $status = 3 ] && says "became shorter while it was in use"'
make_text t.txt 2000

# At any moment, the start included.
for i in $(seq 12); do
    "$PRUN" "$four" --data "$TMP/t.txt" --steps 1000000 >said 2>&1 &
    pid=$!
    sleep 0.0$((RANDOM % 90 + 10))
    ranks=($(children $pid | sort -n))
    victim=$pid
    [ $((i % 3)) = 0 ] || victim=${ranks[RANDOM % 4]:-$pid}
    kill -KILL "$victim" 2>/dev/null
    if ! ends; then echo "not ok a run ends at any moment of a death"; exit; fi
    [ "$victim" = $pid ] || [ $status = 3 ] || { echo "status $status"; cat said; echo "not ok a run ends at any moment of a death"; exit; }
done
echo "ok a run ends at any moment of a death"

# ---- traces ----

# Of a rank, on all of its streams or on one.
events() { grep -c "\"ph\": \"X\", \"pid\": $1, \"tid\": ${3:-[0-9]}," "$2"; }
track() { grep -qF "\"pid\": $1, \"tid\": $2, \"name\": \"thread_name\", \"args\": {\"name\": \"$3\"}" "$4"; }
check "a trace has a track for each stream of a rank and an event an instruction" '"$PRUN" "$four" --data t.txt --steps 2 --trace t.json 2>said && says "^trace: [0-9,]+ events in .t.json.$" &&
    [ "$(events 0 t.json)" -gt 300 ] && [ "$(events 3 t.json)" -gt 300 ] && [ "$(events 3 t.json 0)" -gt 200 ] && [ "$(events 3 t.json 2)" -gt 5 ] && [ "$(grep -c process_name t.json)" = 4 ] && track 3 2 gradient t.json && [ "$(tail -n 1 t.json)" = "]}" ]'
check "one of a run that ends badly has what was done" '"$PRUN" "$four" --data t.txt --steps 4 --set lr=1e8 --trace bad.json >said 2>&1; [ $? = 1 ] && [ "$(events 2 bad.json)" -gt 300 ]'
check "and says what it lost" '"$PRUN" "$four" --data t.txt --steps 400 --trace t.json 2>said && says "; [0-9,]+ earlier ones are lost: a rank keeps its last 65,536" && [ "$(events 1 t.json)" = 65536 ]'
check "one rank has a trace too" '"$PRUN" one.plan --data t.txt --steps 2 --trace one.json 2>said && [ "$(events 0 one.json)" -gt 100 ]'
check "an evaluation is no step of a trace" '"$PRUN" "$four" --data t.txt --eval e.txt --steps 2 --trace t.json 2>said && [ "$(grep -oE "\"step\": [0-9]+" t.json | sort -u | tr "\n" " ")" = "\"step\": 1 \"step\": 2 " ] && [ "$(grep -oE "\"evaluation after step\": [0-9]+" t.json | sort -u)" = "\"evaluation after step\": 2" ]' || cat said
cp t.txt kept.txt
check "a trace destroys no input" 'refused 2 "would overwrite" "$PRUN" one.plan --data t.txt --steps 2 --trace t.txt && cmp t.txt kept.txt && refused 2 "would overwrite" "$PRUN" "$four" --data t.txt --steps 2 --trace t.txt && cmp t.txt kept.txt'

# ---- options ----

check "--ranks and --timeout need many ranks" 'refused 2 "has no effect on a plan of one rank" "$PRUN" one.plan --data t.txt --ranks threads && refused 2 "has no effect on a plan of one rank" "$PRUN" one.plan --data t.txt --timeout 3 &&
    refused 2 "expected '"'processes' or 'threads'"'" "$PRUN" "$four" --data t.txt --ranks rank && refused 2 "expected a number of seconds from 0.1" "$PRUN" "$four" --data t.txt --timeout 0'
