# H03: stages send each other 1 KiB, 1 MiB and 64 MiB at once, both ways, under both schedules, and a step has its end and
# its numbers.  Nothing is buffered between them on the cpu: a message lies with its sender until it is fetched.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
cat >pipe.pmodel <<'END'
model pipe {
  dim batch = 4, rows = 1, d = 256
  precision { compute = f32 }
  optimizer sgd { lr = 0.1 }
  input x[batch, rows, d] : f32
  y = x
  repeat 4 as h {
    weight g[d] ~ ones
    y = y * g
  }
  minimize mean(mean(mean(y * y, over = d), over = rows), over = batch)
}
END
# run NAME ROWS STEPS RULES: its losses in NAME.log; a sample is a micro-batch, and a message.
run() {
    "$RELEASE/pplan" plan pipe.pmodel -c laptop4 -D rows="$2" -D batch="$samples" --with "microbatches = $samples; $4" -o p.plan >said 2>&1 &&
        timeout 60 "$PRUN" p.plan $on --data random --steps "$3" --log "$1.log" >said 2>&1
}
messages() {
    local size rows steps samples schedule stages
    for size in '1 20 4' '1024 20 4' '65536 2 2'; do
        [ "$size$device" != '65536 2 2cudaemu' ] || continue          # there it would take minutes
        read -r rows steps samples <<<"$size"
        run one "$rows" "$steps" 'devices = [0]' || cat said
        for schedule in 1f1b gpipe; do
            for stages in 'mesh pp = 2; devices = [0, 1]; stage before h[2]' 'mesh pp = 4; stage every 1 in h'; do
                check "H03 messages of $rows KiB, $steps steps of $schedule (${stages%%;*}, $device)" 'run many "$rows" "$steps" "$stages; schedule = \"$schedule\"" && near loss 1e-6 "$steps"' || cat said
            done
        done
    done
}
on_devices messages
