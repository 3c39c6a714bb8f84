# Mixed precision: bf16 against f32, resumed and under other layouts, and f32 and bf16 runs
# that go on with each other's checkpoints.
. "$TESTS/run/lib.bash"
make_text t.txt $((40 * 32 + 1))
cat >machine.pcluster <<'END'
device core { backend = cpu, threads = 1, memory = 2 GiB, reserve = 256 MiB, bandwidth = 12 GB/s
  peak.f32 = 100 GFLOP/s, peak.bf16 = 100 GFLOP/s, peak.f16 = 100 GFLOP/s
  efficiency = [[0, 0.5]], launch = 1 us }
cluster four { level socket = 4 * core { link = 6 GB/s, latency = 3 us, topology = full, cores = 2 } }
END
plan() { "$RELEASE/pplan" plan "$MODELS/tiny/tiny_$1.pmodel" -c machine.pcluster -D dtype="$2" --with "$3" -o "$4" >/dev/null || exit 2; }
one="devices = [0]"
train() { "$RELEASE/prun" "$1" --data t.txt --steps 10 --log "$2" "${@:3}" 2>>err; }
# near FILE FILE TOLERANCE LINES: losses line by line, relative.
near() { paste <(field loss "$1") <(field loss "$2") | awk -v t="$3" '{ d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= t)) bad = 1; n++ } END { exit bad || n != '"$4"' }'; }

for m in gpt2 llama; do
    plan $m f32 "$one" $m.f32.plan
    plan $m bf16 "$one" $m.bf16.plan
    train $m.f32.plan $m.f32.log --save $m.f32 --save-every 5 --keep 9 && train $m.bf16.plan $m.bf16.log --save $m.bf16 --save-every 5 --keep 9 || exit 1
    check "$m: ten losses in bf16 are within 1e-2 of those in f32, and not the same" 'near $m.f32.log $m.bf16.log 1e-2 10 && ! near $m.f32.log $m.bf16.log 0 10'
    train $m.bf16.plan again.log --resume $m.bf16/step-00000005 --save again.$m || exit 1
    check "$m: a resumed run in bf16 ends with the same bits" 'same $m.bf16/step-00000010 again.$m/step-00000010 && cmp <(tail -n 5 $m.bf16.log | figures) <(figures again.log)'
done
check "a checkpoint of a bf16 run has what one of f32 has: its tensors and their types" '
    cmp <(head -c $((8 + $(od -An -t u8 -N8 gpt2.f32/step-00000005/weights.safetensors))) gpt2.f32/step-00000005/weights.safetensors) \
        <(head -c $((8 + $(od -An -t u8 -N8 gpt2.bf16/step-00000005/weights.safetensors))) gpt2.bf16/step-00000005/weights.safetensors)'

# dumps are of the master copy, or of what a value is
train gpt2.bf16.plan err.log --dump weights@10=w.st --dump wte@10=wte.st --dump h[0].ln1@10=ln1.st || exit 1
check "a dump of weights is the checkpoint, in f32" 'cmp w.st gpt2.bf16/step-00000010/weights.safetensors && head -c 200 wte.st | grep -q "\"F32\""'
check "a dump of an activation is in bf16" 'head -c 200 ln1.st | grep -q "\"BF16\""'

# other layouts begin with the same bits, and go on from the same checkpoint
i=0
for with in "mesh dp = 4; shard optimizer by dp" "mesh pp = 2, dp = 2; stage before h[2]; microbatches = 2; shard optimizer by dp" \
    "mesh dp = 2, tp = 2; split heads, ffn, vocab by tp; split seq by tp" "mesh dp = 4; sync = \"server\"" "mesh pp = 4; stage before h[1]; stage before h[2]; stage before h[3]; microbatches = 4"; do
    i=$((i + 1))
    plan gpt2 bf16 "$with" l$i.plan
    train l$i.plan l$i.log --resume gpt2.bf16/step-00000005 --save l$i --dump weights@5=l$i.st || exit 1
    check "'$with' takes up the master copy, bit for bit" 'cmp l$i.st gpt2.bf16/step-00000005/weights.safetensors'
    check "'$with' goes on with the losses of one device" 'near <(tail -n 5 gpt2.bf16.log) l$i.log 0.000244 5'
    "$RELEASE/prun" l$i.plan --data t.txt --steps 1 --dump weights@0=s$i.st 2>>err || exit 1
done
"$RELEASE/prun" gpt2.bf16.plan --data t.txt --steps 1 --dump weights@0=s.st 2>>err || exit 1
"$RELEASE/prun" gpt2.f32.plan --data t.txt --steps 1 --dump weights@0=f.st 2>>err || exit 1
check "the start is the same in bf16, in f32 and under every layout" 'cmp s.st f.st && cmp s.st s1.st && cmp s.st s2.st && cmp s.st s3.st && cmp s.st s4.st && cmp s.st s5.st'
for p in gpt2.bf16 l2; do
    "$RELEASE/prun" $p.plan --data t.txt --steps 12 --resume l1/step-00000010 --log more.$p.log 2>>err || exit 1
done
check "one device goes on from the shared states" 'near more.gpt2.bf16.log more.l2.log 0.000244 2'

train gpt2.f32.plan up.log --resume gpt2.bf16/step-00000005 && train gpt2.bf16.plan down.log --resume gpt2.f32/step-00000005 || exit 1
check "f32 goes on from bf16, and bf16 from f32" 'near <(tail -n 5 gpt2.f32.log) up.log 1e-2 5 && near <(tail -n 5 gpt2.bf16.log) down.log 1e-2 5'

# to run forward, trained weights are rounded, and this is said
head='model m {
  dim batch = 4, d = 8, class = 4
  param dtype = bf16
  precision { compute = dtype }
  input x[batch, d] : f32'
printf '%s\n  optimizer adamw { lr = 0.1 }\n  input y[batch] : i32\n  minimize cross_entropy(z: linear(x, class), y)\n}\n' "$head" >train.pmodel
printf '%s\n  output z: linear(x, class)\n}\n' "$head" | sed 's/output z: \(.*\)/z = \1\n  output z/' >forward.pmodel
small() { "$RELEASE/pplan" plan "$1.pmodel" -c machine.pcluster --with "$one" "${@:3}" -o "$2" >/dev/null || exit 2; }
small train train.plan
small forward forward.plan
small forward wide.plan -D dtype=f32
"$RELEASE/prun" train.plan --data random --steps 3 --save m --save-every 3 2>>err || exit 1
check "forward in f32 says nothing of rounding" '"$RELEASE/prun" wide.plan --data random --steps 1 --resume m 2>said && ! grep -q "rounded" said'
check "forward in bf16 says that weights are rounded" '"$RELEASE/prun" forward.plan --data random --steps 1 --resume m --dump weights@0=r.st 2>said && grep -q "note: weights are rounded from f32 to bf16" said'
check "and dumps them as they are" 'head -c 200 r.st | grep -q "\"BF16\""'

"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c machine.pcluster -D dtype=f16 --with "$one" -o f16.plan >said 2>&1
check "f16 is planned" 'test $? -eq 0 && grep -q "master weights" said'
check "f16 is refused by prun" 'refused 1 "the plan computes in f16, which needs its losses scaled" "$RELEASE/prun" f16.plan --data t.txt'
