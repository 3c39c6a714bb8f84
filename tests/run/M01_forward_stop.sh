# M01, H06, M07: runs that only go forward. SIGTERM ends them after the same batch on all
# ranks, a killed rank ends them with a message, and what the last stage alone has is told.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
cat >fwd.pmodel <<'END'
model fwd {
  dim batch = 8, pixel = 6, hidden = 8, class = 4
  precision { compute = f32 }
  input image[batch, pixel] : f32
  h = relu(fc1: linear(image, hidden))
  logits = fc2: linear(h, class)
  output logits
}
END
plan() { "$RELEASE/pplan" plan fwd.pmodel -c "$2" --with "microbatches = 2; $3" -o "$1" >said 2>&1 || { cat said; exit 2; }; }
plan one.plan laptop1 ''
plan pp.plan laptop4 'devices = [0, 1]; mesh pp = 2; stage before fc2'
plan dp.plan laptop4 'mesh dp = 4'
plan both.plan laptop4 'mesh pp = 2, tp = 2; stage before fc2; split hidden by tp'

reals() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t f4 -w4; }

# start PLAN: in the background; returns when the first batch is done.
start() {
    rm -f out
    "$PRUN" "$TMP/$1.plan" $on --data random --steps 1000000000 --dump fc2@1=out --dump fc2@999999999=never >said 2>&1 &
    pid=$!
    wait_until '[ -s out ]'
    find_ranks
}

# stopped: once the run is told of, in two lines that agree.
stopped() {
    local n
    ends_within 10000 && [ $status = 0 ] && [ ! -e never ] || { echo "status $status"; cat said; return 1; }
    n=$(sed -nE 's/^stopped as asked after batch ([0-9]+) of 1000000000; 1 dump of later steps not made$/\1/p' said)
    [ "${n:-0}" -ge 1 ] && once "^forward: $((8 * n)) samples in $n batches, " && once "^stopped" && [ "$(grep -c "^memory" said)" = 1 ] && ! grep error: said
}

forward() {
    local plan victim
    for plan in one pp dp both; do
        start $plan
        kill -TERM $pid
        check "$plan: SIGTERM ends the run after a batch ($device)" 'stopped'
        [ $plan$device != onecpu ] || cp out want
        check "$plan: what the last stage made is what one device makes ($device)" 'paste <(reals out) <(reals want) | awk "NF != 2 || (\$1 - \$2) ^ 2 > 1e-12 { bad = 1 } END { exit bad || NR != 32 }"'
    done
    start pp
    kill -INT $pid
    check "SIGINT does, too ($device)" 'stopped'
    for victim in 0 1; do
        start pp
        kill -KILL "${ranks[victim]}"
        check "rank $victim killed: a message, status 3 ($device)" 'ends_within 10000 && [ $status = 3 ] && once "error:" && says "error: rank $victim was killed by SIGKILL"' || cat said
    done
}
on_devices forward
check "a run to its end is not told to be stopped" '"$PRUN" pp.plan --data random --steps 3 2>said && says "^forward: 24 samples in 3 batches, " && ! grep stopped said'

# The same for training: what is not made is said.
make_plan train.plan
make_text t.txt 2000
"$PRUN" "$TMP/train.plan" --data t.txt --steps 1000000 --log l --dump weights@900000=never >said 2>&1 &
pid=$!
wait_until 'grep -qs step l'
kill -TERM $pid
check "training: a dump that is not made is named" 'ends && [ $status = 0 ] && says "stopped as asked; nothing saved, as there is no --save; 1 dump of later steps not made"' || cat said
