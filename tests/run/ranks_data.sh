# Data of many ranks: every layout takes the same batches, does the same number of steps,
# and refuses the same data with the same words, said once.
. "$TESTS/run/lib.bash"
PRUN=$RELEASE/prun
plan_many() {                         # FILE RULES [OPTION...]
    local out=$1 rules=$2
    shift 2
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 -D hidden=8 -D heads=4 "$@" --with "$rules" -o "$out" >/dev/null || exit 2
}
layouts=(one dp tp cp stages three both)
rules=('mesh dp = 1; devices = [0]; microbatches = 2' 'mesh dp = 4; microbatches = 2' 'mesh tp = 4; split heads, ffn, vocab by tp; split seq by tp; microbatches = 1'
    'mesh dp = 2, cp = 2; split seq by cp; microbatches = 2'
    'mesh pp = 2; devices = [0, 1]; microbatches = 4; stage before h[1]' 'mesh pp = 3; devices = [0, 1, 2]; microbatches = 2; stage before h[1]; stage after h'
    'mesh pp = 2, dp = 2; microbatches = 2; stage before h[1]; shard optimizer by dp')
for i in "${!layouts[@]}"; do plan_many ${layouts[i]}.plan "${rules[i]}"; done
# close FILE FILE: losses and norms agree to 1e-5.
close() {
    paste <(grep -oE '"(loss|grad_norm|eval_loss)": [^,}]*' "$1") <(grep -oE '"(loss|grad_norm|eval_loss)": [^,}]*' "$2") |
        awk 'NF != 4 || $1 != $3 || ($2 - $4) ^ 2 > (1e-5 * $2) ^ 2 { print; bad = 1 } END { exit bad || NR == 0 }'
}

# ---- the same batches ----

make_text t.txt 600
for x in "${layouts[@]}"; do
    "$PRUN" $x.plan --data random --steps 3 --log $x.random 2>said || cat said
    "$PRUN" $x.plan --data t.txt --steps 3 --seed 4 --dump samples@2=$x.samples --dump ids@2=$x.ids --dump labels@3=$x.labels 2>said || cat said
done
for x in "${layouts[@]:1}"; do
    check "K06 random data are the same ($x)" 'close one.random $x.random'
    check "K06 samples, ids and labels of a step are the same ($x)" 'cmp one.samples $x.samples && cmp one.ids $x.ids && cmp one.labels $x.labels'
done

# ---- K07: the place in the data is that of the run ----

# 37 samples, 8 a step: the fifth step takes the last five of the first epoch and the first of the next.
"$PRUN" one.plan --data t.txt --steps 6 --seed 4 --dump samples@4=s4 --dump samples@5=s5 --dump samples@6=s6 2>said || cat said
for x in "${layouts[@]}"; do
    check "K07 samples of steps 4 to 6, after three of the layout before, across an epoch's end ($x)" '"$PRUN" ${last:-both}.plan --data t.txt --seed 4 --steps 3 --save at.$x 2>said &&
        "$PRUN" $x.plan --data t.txt --seed 4 --steps 6 --resume at.$x --dump samples@4=r4 --dump samples@5=r5 --dump samples@6=r6 2>said && cmp s4 r4 && cmp s5 r5 && cmp s6 r6' || cat said
    last=$x
done

# On GPUs the host brings them there: the first batches of the stages that ranks share, and those after another layout's three.
batches_of_gpus() {
    [ $device != cpu ] || return 0
    check "K06 samples, ids and labels of a step are the same (both, $device)" '"$PRUN" both.plan $on --data t.txt --steps 3 --seed 4 --save gpus --dump samples@2=g2 --dump ids@2=gi --dump labels@3=gl 2>said &&
        cmp one.samples g2 && cmp one.ids gi && cmp one.labels gl' || cat said
    check "K07 samples of steps 4 to 6, after three of the layout before, across an epoch's end (tp, $device)" '"$PRUN" tp.plan $on --data t.txt --steps 6 --seed 4 --resume gpus --dump samples@4=r4 --dump samples@5=r5 --dump samples@6=r6 2>said &&
        cmp s4 r4 && cmp s5 r5 && cmp s6 r6' || cat said
}
on_devices batches_of_gpus

# ---- C04: each held-out token once, whatever the number of ranks ----

make_text five.txt $((5 * 16 + 1)) 7
for dp in 1 2 3 4; do
    plan_many held.plan "mesh dp = $dp; devices = [$(seq -s ', ' 0 $((dp - 1)))]; microbatches = 1" -D batch=$((2 * dp))
    check "C04 five held-out samples, two a rank (dp = $dp)" '"$PRUN" held.plan --data t.txt --eval five.txt --steps 1 --set lr=0 --log held.log 2>said &&
        loss=$(field eval_loss held.log) && awk "BEGIN { d = $loss / ${first:=$loss} - 1; exit !(d < 1e-6 && d > -1e-6) }"' || cat said
done

# ---- H05, C03: the same number of steps ----

make_text left.txt $((21 * 16 + 1))                   # 21 samples: two batches of 8, and 5
make_text held.txt $((9 * 16 + 1)) 7                  # 9: the last rows are missing on some ranks
same_steps() {
    local x
    for x in "${layouts[@]}"; do
        check "H05 C03 one epoch of 21 samples is 2 steps, and 5 are left over ($x, $device)" '"$PRUN" $x.plan $on --data left.txt --eval held.txt --set steps=0 --log $x.log 2>said &&
            [ "$(grep -c "one epoch: 21 samples, 2 steps of 8; 5 left over" said)" = 1 ] && [ "$(field step $x.log | tr "\n" " ")" = "1 2 2 " ]' || cat said
        [ $x$device != onecpu ] || cp one.log held.log
        check "C04 the loss of 9 held-out samples ($x, $device)" 'close held.log $x.log'
    done
}
on_devices same_steps

# A loss over all rows of a micro-batch: the held-out samples that fill none are left out by all ranks.
cat >mean.pmodel <<'END'
model mean {
  dim batch = 8, pixel = 6, hidden = 8
  precision { compute = f64 }
  optimizer sgd { lr = 0.1 }
  input image[batch, pixel] : f64
  y = fc2: linear(relu(fc1: linear(image, hidden)), pixel)
  minimize mean(mean((y - image) * (y - image), over = pixel), over = batch)
}
model image {
  dim batch = 22, pixel = 6
  precision { compute = f64 }
  input image[batch, pixel] : f64
  y = fc: linear(image, pixel)
  output y
}
END
"$RELEASE/pplan" plan mean.pmodel -c laptop1 --model image -o image.plan >/dev/null || exit 2
"$PRUN" image.plan --data random --steps 1 --dump image@1=image 2>said || cat said
i=0
for with in 'mesh dp = 1; devices = [0]' 'mesh pp = 2; devices = [0, 1]; stage before fc2' 'mesh pp = 2, dp = 2; stage before fc2'; do
    "$RELEASE/pplan" plan mean.pmodel -c laptop4 --model mean --with "$with; microbatches = 2" -o mean.plan >/dev/null || exit 2
    check "H05 22 held-out samples of a mean: 5 micro-batches of 4 on all ranks ($with)" '"$PRUN" mean.plan --data image=image --eval image=image --eval-every 1 --steps 4 --log mean$i.log 2>said &&
        [ "$(grep -c "the held-out loss covers 20 of 22 samples" said)" = 1 ] && close mean0.log mean$i.log' || cat said
    i=$((i + 1))
done

# ---- K01, K03, K04: the same refusals ----

u16() { for t; do printf "\\x$(printf %x $((t % 256)))\\x$(printf %x $((t / 256)))"; done; }
bytes() { head -c "$2" /dev/zero | tr '\0' "$1"; }
for i in "${!layouts[@]}"; do plan_many ${layouts[i]}.small "${rules[i]}" -D vocab=64; done
plan_many padded.small 'mesh tp = 4; split vocab by tp; pad vocab to 4' -D vocab=61
{ u16 $(yes 1 | head -50); u16 64; u16 $(yes 1 | head -149); } >id.bin
{ u16 $(yes 1 | head -192); u16 64; } >label.bin      # after the last sample's ids: a label alone
{ u16 $(yes 1 | head -50); u16 62; u16 $(yes 1 | head -149); } >padding.bin
bytes '\001' 399 >odd.bin
bytes '\001' 16 >short.txt
bytes '\001' 113 >seven.txt
: >empty.txt
bytes '\001' 129 >good.txt
no() {                                # NAME TEXT OPTION...: all layouts say it once, in one line, and take no step
    local name=$1 text=$2 x data=("${@:3}")
    for x in "${layouts[@]}"; do
        check "$name ($x)" 'refused 1 "$text" "$PRUN" $x.small "${data[@]}" --steps 1 --log l && [ "$(wc -l <said)" = 1 ] && [ ! -e l ]'
    done
}
no "K01 an id outside the vocabulary" "byte 100 (sample 3): 64 cannot be a number of 'ids': 'wte' has 64 rows, so it is 0..63" --data id.bin
no "K01 a label outside the classes" "byte 384 (sample 11): 64 cannot be a label in 'labels': 'logits' has 64 classes, so it is 0..63" --data label.bin
no "K01 in held-out data" "byte 384 (sample 11): 64 cannot be a label in 'labels'" --data good.txt --eval label.bin
check "K01 a row of padding is no id" 'refused 1 "62 cannot be a number of '"'ids'"': '"'wte'"' has 61 rows, so it is 0..60" "$PRUN" padded.small --data padding.bin --steps 1'
no "K03 an odd number of bytes" "tokens of 2 bytes, but it has 399 bytes" --data odd.bin
no "K04 as many tokens as a sample has" "it has 16 tokens, but one sample of 16 needs 17" --data short.txt
no "K04 fewer samples than a batch" "the data have 7 samples, but a step takes a batch of 8" --data seven.txt
no "K04 an empty held-out set" "it has 0 tokens, but one sample of 16 needs 17" --data good.txt --eval empty.txt

# ---- L07: the rate is a function of the number of steps ----

. "$TESTS/run/rates.bash"
for x in dp tp both; do
    check "L07 rates ($x)" '"$PRUN" $x.plan --data t.txt "${schedule[@]}" --log $x.rates 2>said && right $x.rates' || cat said
done
# rates STEPS PLAN OPTION...: go on to there.
rates() { "$PRUN" $2.plan --data t.txt "${schedule[@]}" --steps $1 --save d --log r.log "${@:3}" 2>said || { cat said; return 1; }; }
check "L07 rates after two resumes, each into another layout" 'rates 8 both && rates 11 dp --resume d && rates 20 tp --resume d && right r.log'
