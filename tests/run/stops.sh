# How runs end before their last step: asked to, with numbers that are none, and
# not at all when the folder is taken.
. "$TESTS/run/lib.bash"
make_plan p.plan
make_text t.txt 2000
long=(--steps 1000000)

prun p.plan --data t.txt "${long[@]}" --save d --log l 2>said &
pid=$!
wait_until 'grep -qs "\"step\": 2," l'
check "J05 a second run into the same folder is refused" 'refused 1 "another run is saving into '"'d'"'" prun p.plan --data t.txt --steps 1 --save d'
kill -TERM $pid
wait $pid
check "SIGTERM: the step is finished and the status is 0" '[ $? -eq 0 ] && grep -q "stopped as asked; saved" said' || cat said
last=$(field step l | tail -n 1)
check "SIGTERM: it is saved" '[ "$(cat d/latest)" = "$(printf step-%08d "$last")" ]'
check "SIGTERM: the run goes on from there" 'prun p.plan --data t.txt --steps $((last + 2)) --resume d --save d --log l 2>>said &&
    [ "$(field step l | tail -n 2 | tr "\n" " ")" = "$((last + 1)) $((last + 2)) " ]'

# A rate that blows the weights up: step 2 has no finite loss.
blown_up() {
    rm -rf n n.log
    check "D04 a loss that is no number stops the run ($device)" 'refused 1 "not a number to go on with" ${on:+"$RELEASE"/}prun p.plan $on --data t.txt --steps 4 --set lr=1e8 --save n --save-every 1 --log n.log'
    check "D04 and what was saved before it stands ($device)" '[ -f n/latest ] && ! grep -qi nan n.log && last=$(field step n.log | tail -n 1) && [ "$(cat n/latest)" = "$(printf step-%08d "$last")" ]'
}
on_devices blown_up

make_plan s.plan
check "an eps that is zero in f32 is refused" 'refused 2 "at least 1e-30" prun s.plan --data random --steps 1 --set eps=0'
check "a rate that would rise is refused" 'refused 2 "larger than lr" prun s.plan --data random --steps 1 --set lr=1e-6 --set min_lr=1 --set decay=cosine'
