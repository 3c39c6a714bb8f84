# Numbers of many ranks that have a closed form, or those of one device bit for bit: start
# weights, sums over ranks in f32, and models that only run forward.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
reals() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t f"${2:-8}" -w"${2:-8}"; }
plan_many() { "$RELEASE/pplan" plan "$2" -c laptop4 -o "$1" --with "${@:3}" >/dev/null || exit 2; }
alone='mesh dp = 1; devices = [0]'

# ---- A08: the start weights are those of one device, whatever the layout ----

gpt=$MODELS/tiny/tiny_gpt2.pmodel
starts() {
    local with
    plan_many start.plan "$gpt" "$alone"
    "$PRUN" start.plan --data random --steps 1 --seed 5 --dump weights@0=want 2>said || cat said
    for with in "$@"; do
        plan_many start.plan "$gpt" "$with"
        check "A08 start weights ($with, $device)" '"$PRUN" start.plan $on --data random --steps 1 --seed 5 --dump weights@0=have 2>said && cmp want have' || cat said
    done
}
on_devices starts 'mesh dp = 4' 'mesh tp = 4; split heads, ffn, vocab by tp' 'mesh pp = 4; stage every 1 in h' 'mesh dp = 2, tp = 2; split heads, ffn, vocab by tp; split seq by tp' \
    'mesh dp = 4; shard optimizer by dp' 'mesh pp = 2, dp = 2; stage before h[2]; microbatches = 2'
cat >spread.pmodel <<'END'
model spread {
  dim batch = 4, d = 32, ffn = 256
  precision { compute = f64 }
  input x[batch, d] : f64
  y = down: linear(relu(up: linear(x, ffn)), d)
  output y
}
END
# down.w [ffn, d] is uniform up to 1 / sqrt(ffn): a deviation of 1 / sqrt(3 ffn), 0.0361; twice that if a fourth of ffn counted.
for with in "$alone" 'mesh tp = 4; split ffn by tp'; do
    plan_many spread.plan spread.pmodel "$with"
    check "A08 the spread of a row-split weight ($with)" '"$PRUN" spread.plan --data random --steps 1 --dump down.w@0=w 2>said &&
        reals w | awk "{ n++; s += \$1 * \$1 } END { d = sqrt(s / n) / 0.0360844; exit !(n == 8192 && d > 0.95 && d < 1.05) }"' || cat said
done

# ---- D05: 1028 ones are 1028 in micro-batches and over ranks; a sum in bf16 has no such number ----

cat >ones.pmodel <<'END'
model ones {
  dim batch = 1028, d = 3
  precision { compute = f32 }
  optimizer sgd { lr = 1e-3, momentum = 0.9 }
  input x[batch, d] : f32
  weight b[d]
  minimize sum(x + b, over = [batch, d])
}
END
ones() {
    local with
    for with in "$@"; do
        plan_many ones.plan ones.pmodel "$with"
        check "D05 1028 ones in f32 ($with, $device)" '"$PRUN" ones.plan $on --data random --steps 1 --dump grads@1=g --log - 2>said >log && [ "$(reals g 4 | tr -d " " | tr "\n" " ")" = "1028 1028 1028 " ] &&
            awk "{ d = \$1 / (1028 * sqrt(3)) - 1; exit !(d < 1e-12 && d > -1e-12) }" <(field grad_norm log)' || cat said log
    done
}
on_devices ones "$alone; microbatches = 1028" 'mesh dp = 4; microbatches = 257' 'mesh dp = 4; microbatches = 1' 'mesh dp = 4; microbatches = 257; shard optimizer by dp; bucket = 1 B' \
    'mesh dp = 4; microbatches = 257; sync = "server"' 'mesh dp = 2, tp = 2; microbatches = 257; split batch by tp'

# The same with bf16 for all but sums: of gradients, and of the loss itself.
cat >half.pmodel <<'END'
model half {
  dim batch = 1028, d = 3
  precision { compute = bf16 }
  optimizer sgd { lr = 1e-3, momentum = 0.9 }
  input x[batch, d] : f32
  weight b[d] ~ ones
  minimize sum(0.0 * x + b, over = [batch, d])
}
model least {
  dim d = 300
  precision { compute = bf16 }
  optimizer sgd { lr = 1e-3 }
  weight b[d] ~ ones
  minimize sum(b, over = d)
}
END
sed 's/peak.f64/peak.bf16 = 30 GFLOP\/s\n  peak.f64/' "$MODELS/clusters/laptop4.pcluster" >half.pcluster
halves() {
    local with
    for with in "$@"; do
        "$RELEASE/pplan" plan half.pmodel --model half -c half.pcluster --with "$with" -o half.plan >said || cat said
        check "D05 1028 ones with bf16 ($with, $device)" '"$PRUN" half.plan $on --data random --steps 1 --dump grads@1=g --log - 2>said >log && [ "$(reals g 4 | tr -d " " | tr "\n" " ")" = "1028 1028 1028 " ] &&
            [ "$(field loss log)" = 3084 ] && awk "{ d = \$1 / (1028 * sqrt(3)) - 1; exit !(d < 1e-12 && d > -1e-12) }" <(field grad_norm log)' || cat said log
    done
    "$RELEASE/pplan" plan half.pmodel --model least -c half.pcluster --with "$alone" -o half.plan >said || cat said
    check "D05 a loss of bf16 is logged as a number ($device)" '"$PRUN" half.plan $on --data random --steps 1 --log - 2>said >log && [ "$(field loss log)" = 300 ]' || cat said log
}
on_devices halves "$alone; microbatches = 1028" "$alone; microbatches = 1" 'mesh dp = 4; microbatches = 257' 'mesh dp = 4; microbatches = 257; shard optimizer by dp; bucket = 1 B' \
    'mesh dp = 4; microbatches = 257; sync = "server"' 'mesh dp = 2, tp = 2; microbatches = 257; split batch by tp'

# ---- J07: a model without a loss, on many ranks ----

cat >fwd.pmodel <<'END'
model fwd {
  dim batch = 4, pixel = 6, hidden = 8, class = 4
  param dtype = f64
  precision { compute = dtype }
  input image[batch, pixel] : f64
  h = relu(fc1: linear(image, hidden))
  logits = fc2: linear(h, class)
  output logits
}
END
"$RELEASE/pplan" plan fwd.pmodel -c laptop1 -D batch=10 -o whole.plan >/dev/null || exit 2
"$PRUN" whole.plan --data random --steps 1 --dump image@1=ten --dump fc2@1=want 2>said || cat said
for with in 'mesh dp = 4' 'mesh tp = 4; split hidden by tp' 'mesh pp = 2; devices = [0, 1]; stage before fc2; microbatches = 2' 'mesh pp = 2, dp = 2; stage before fc2; microbatches = 2'; do
    plan_many fwd.plan fwd.pmodel "$with"
    check "J07 forward on many ranks ($with)" '"$PRUN" fwd.plan --data image=ten --dump fc2@1=a --dump fc2@2=b --dump fc2@3=c --dump samples@3=s 2>said && grep -q "forward: 10 samples in 3 batches" said &&
        [ "$(integers s | tr "\n" " ")" = "8 9 " ] && cat <(reals a) <(reals b) <(reals c) | paste - <(reals want) | awk "NF != 2 || (\$1 - \$2) ^ 2 > 1e-24 { exit 1 } END { exit NR != 40 }"' || cat said
    check "J07 no bytes of training ($with)" '"$RELEASE/pplan" dump fwd.plan --memory --json >said && ! grep -qE "\"(gradients|moments|saved)\": [1-9]" said' || cat said
done

# ---- J05: as many processes as the product of the sizes ----

plan_many start.plan "$gpt" 'mesh pp = 2, tp = 2; split heads, ffn by tp; stage before h[2]'
check "J05 two stages of two are four ranks" '"$PRUN" start.plan --data random --steps 1 2>said && grep -q "^memory: 4 ranks" said' || cat said
check "J05 a mesh that is larger than the machine" 'refused 1 "the mesh pp = 2, dp = 2, tp = 2 has 8 places, but cluster '"'laptop4'"' has 4 devices" "$RELEASE/pplan" plan "$gpt" -c laptop4 --with "mesh pp = 2, dp = 2, tp = 2" -o no.plan && [ ! -e no.plan ]'
check "J05 and one that is smaller" 'refused 1 "the mesh tp = 2 has 2 places, but cluster" "$RELEASE/pplan" plan "$gpt" -c laptop4 --with "mesh pp = 1, dp = 1, cp = 1, ep = 1, tp = 2" -o no.plan; grep -q "tp = 2" said'
