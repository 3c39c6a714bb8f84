# H01 on the emulator of GPUs: stages one after the other and micro-batches of all numbers, fewer than stages and more, under both schedules: each
# run has its end, and the losses of one device of the cpu.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
steps=2
stages=('' '' 'stage before h[2]' 'stage before h[1]; stage before h[3]' 'stage every 1 in h')

# schedules PP M: both.
schedules() {
    local schedule
    for schedule in 1f1b gpipe; do
        plan many.plan gpt2 "layers=4 batch=$2" "mesh pp = $1; devices = [$(seq -s ', ' 0 $(($1 - 1)))]; microbatches = $2; schedule = \"$schedule\"; ${stages[$1]}"
        rm -f many
        timeout 30 "$PRUN" many.plan --device cudaemu --data t.txt --steps $steps --log many >said 2>&1 && agree many one.$2 1e-5 || { echo "pp = $1, $2 micro-batches, $schedule:"; cat said; bad=1; }
    done
}

all() {
    local pp m bad
    for m in 1 2 3 5 9; do
        plan one.plan gpt2 "layers=4 batch=$m" "devices = [0]; microbatches = $m"
        "$PRUN" one.plan --data t.txt --steps $steps --log one.$m 2>said || cat said
    done
    for pp in 2 3 4; do
        bad=0
        for m in 1 2 3 5 9; do schedules $pp $m; done
        check "H01 $pp stages, 1 to 9 micro-batches, both schedules" '[ $bad = 0 ]'
    done
}
make_text t.txt $((64 * 16 + 1))
on_gpus all
