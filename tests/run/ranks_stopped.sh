# H06: SIGSTOP of each rank in turn, at any time and in a save, ends the run as a death does,
# and so does a rank that ends too early; SIGSTOP of prun alone ends nothing.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
limit=5                                              # seconds; a slow disk keeps ranks waiting, too
make_text t.txt 2000
make_plans
count_calls stages
count_calls tensors

# ended PLAN RANK WHY: with a message of who was stopped, and what the others waited for; the
# next run can go on.
ended() {
    ends_within $((10000 + 1000 * limit)) && [ $status = 3 ] && once "error: rank" && says "error: rank $2 $3" &&
        says "note: rank [0-9](, at instruction [0-9]+)?, waits for rank $2 in " && ! grep "note: rank $2.* waits" said && in_order "$1" "$before" ||
        { echo "status $status"; cat said; return 1; }
}
by_others="made no progress for [0-9.]+ s while others waited for it"
by_any="(was stopped by a signal, [0-9.]+ s ago|$by_others)"  # prun and the others have the same limit

for victim in 0 1 2 3; do
    before=$(latest stages)
    go_on stages --timeout $limit
    kill -STOP "${ranks[victim]}"
    check "rank $victim stopped" 'ended stages $victim "$by_any"'
done
for victim in 0 1 2 3; do
    before=$(latest tensors)
    go_on_to tensors $victim $((1 + calls[$victim,none] / 2)) stop --timeout $limit
    check "rank $victim stopped in a save, before $hit" 'ended tensors $victim "$by_any"'
done

# With prun itself stopped, the others see it by themselves; all that is left to prun is to
# tell how it ended, and to kill who cannot end.
for victim in 0 3; do
    before=$(latest stages)
    go_on stages --timeout $limit
    kill -STOP $pid "${ranks[victim]}"
    check "prun and rank $victim stopped: the others end" 'wait_until "grep -q error: said" && says "error: rank $victim $by_others"'
    kill -CONT $pid
    check "prun and rank $victim stopped: so do they" 'ended stages $victim "$by_others"'
done

# One that ends as if all were well is missed like one that is stopped.
before=$(latest tensors)
go_on_to tensors 1 20 exit --timeout $limit
check "rank 1 ends with status 0 in the middle of a save" 'ended tensors 1 "$by_others" && says "note: rank 1 had ended with status 0"'

go_on tensors
kill -STOP $pid
from=$(last_step tensors.log)
check "prun stopped alone: the ranks go on" 'wait_until "[ \$(last_step tensors.log) -gt $((from + 3)) ]"'
kill -TERM $pid
sleep 0.3
from=$(last_step tensors.log)
check "and know of no signal yet" 'wait_until "[ \$(last_step tensors.log) -gt $((from + 1)) ]"'
kill -CONT $pid
check "then it goes on as well, and passes it on" 'ends && [ $status = 0 ] && says "stopped as asked; saved" && [ "$(latest tensors)" = "$(last_step tensors.log)" ]'

go_on tensors
kill -STOP "${ranks[1]}"
kill -KILL $pid
check "a rank that is stopped ends with prun, too" 'ends_within 10000 && [ "$(grep -c "ends: prun, which started it, is gone" said)" = 4 ]' || cat said

undisturbed stages
undisturbed tensors
