# A model with several losses: each is told by its name, beside their sum, whichever ranks have it; a model with one is
# as it was.
. "$TESTS/run/lib.bash"
cat >three.pmodel <<'END'
model three {
  dim batch = 8, pixel = 6, hidden = 8, class = 4
  param dtype = f64
  precision { compute = dtype }
  optimizer sgd { lr = 0.1 }
  input image[batch, pixel] : f32
  input label[batch]        : i32
  input next[batch]         : i32
  x = low: linear(image, hidden)
  early = cross_entropy(first: linear(relu(x), class), label, ignore = -1)
  repeat 2 as h { x = x + tanh(linear(x, hidden)) }
  minimize early + 0.25 * (late: cross_entropy(second: linear(x, class), next)) + 0.5 * (small: mean(mean(x * x, over = hidden), over = batch))
}
END
sed -E 's/minimize early .*/minimize early/; s/^ *input next.*//; s/model three/model alone/' three.pmodel >alone.pmodel
plan() { "$RELEASE/pplan" plan "$1.pmodel" -c laptop4 --with "$3" ${4:+-D "$4"} -o "$2.plan" >said 2>&1 || { cat said; exit 2; }; }
train() { "$RELEASE/prun" "$1.plan" --data random --eval random --steps 3 --eval-every 2 --log "$2" "${@:3}" 2>said || { cat said; return 1; }; }
# rounded FILE: the numbers of all losses, those of evaluations among them, to ten digits.
rounded() { grep -oE '"(loss|early|late|small|eval_loss)": [^,}]*' "$1" | awk '{ printf "%s %.9e\n", $1, $2 }'; }

plan three one 'devices = [0]'
train one one.log || exit 2
check "a step has each loss by its name" 'head -n 1 one.log | grep -qE "^.\"step\": 1, \"loss\": [0-9.]+, \"losses\": .\"early\": [0-9.]+, \"late\": [0-9.]+, \"small\": [0-9.]+., \"grad_norm\": "'
check "so has an evaluation" '[ "$(grep -cE "^.\"step\": [23], \"eval_loss\": [0-9.]+, \"eval_losses\": .\"early\": [0-9.]+, \"late\": [0-9.]+, \"small\": [0-9.]+..$" one.log)" = 2 ]'
check "with their weights they come to the sum" 'paste <(grep -oE "\"(eval_)?loss\": [^,]*" one.log) <(field early one.log) <(field late one.log) <(field small one.log) |
    awk "{ d = \$3 + 0.25 * \$4 + 0.5 * \$5 - \$2; if (!(d < 1e-14 && d > -1e-14)) exit 1 } END { exit NR != 5 }"'
check "people read them behind it" 'grep -qE "^trained: step 3 of 3, loss [0-9.]{6} \(early [0-9.]{6}, late [0-9.]{6}, small [0-9.]{6}\), [0-9]+ samples/s$" said &&
    [ "$(grep -cE "^step [23]: held-out loss [0-9.]{6} \(early [0-9.]{6}, late [0-9.]{6}, small [0-9.]{6}\)$" said)" = 2 ]'

plan three cut 'devices = [0]; microbatches = 4'
check "micro-batches: the same losses" 'train cut cut.log && diff <(rounded cut.log) <(rounded one.log)'
while IFS='|' read -r name rules; do
    plan three many "$rules"
    for ranks in "" "--ranks threads"; do
        check "$name${ranks:+, }$ranks: the losses of one rank" 'train many many.log $ranks && diff <(rounded many.log) <(rounded one.log)'
    done
done <<'END'
dp|mesh dp = 2; devices = [0, 1]; microbatches = 2
tp|mesh dp = 2, tp = 2; split hidden, class by tp
losses of two stages|mesh pp = 2; devices = [0, 1]; stage before h[0]; microbatches = 4
stages, gpipe|mesh pp = 4; stage before h[0]; stage before h[1]; stage before second; microbatches = 4; schedule = "gpipe"
stages of two ranks|mesh pp = 2, dp = 2; stage before h[1]; microbatches = 2; recompute h full
END

check "a loss that is no number is named among the others" 'refused 1 "not a number to go on with" "$RELEASE/prun" one.plan --data random --steps 50 --set lr=1e8 && grep -qE "^error: step [0-9]+: loss (nan|inf) \(early [a-z0-9.+]+, late [a-z0-9.+]+, small (nan|inf)\), gradient norm " said'
check "a loss that runs away is told in few digits" '"$RELEASE/prun" one.plan --data random --eval random --steps 2 --eval-every 1 --set lr=1e4 2>said; grep -qE "held-out loss [0-9]\.[0-9]{4}e\+[0-9]{2,3} \(early [0-9.e+]{6,11}, late [0-9.e+]{6,11}, small [0-9]\.[0-9]{4}e\+[0-9]+\)" said && ! grep -qE "[0-9]{8}" said' || cat said
plan alone alone 'devices = [0]'
train alone alone.log
check "a model of one loss has no other" '[ "$(wc -l <alone.log)" = 5 ] && ! grep -q losses alone.log && ! grep -q "(early" said'
check "a checkpoint of one goes on in many, with the losses of one run" '"$RELEASE/prun" many.plan --data random --steps 2 --save d --log first.log 2>said &&
    "$RELEASE/prun" one.plan --data random --steps 3 --resume d --log then.log 2>said && diff <(rounded then.log) <(grep "step.: 3, .loss" one.log >last; rounded last)'

# On a terminal: a line that is longer than it is wide would scroll.
terminal() { script -qec "stty cols $1; \"$RELEASE/prun\" one.plan --data random --steps 20" /dev/null </dev/null | tr '\r' '\n' | grep -a '^step '; }
check "the status line has them last" 'terminal 200 | tail -n 1 | grep -qE "^step 20/20  loss [0-9.]+ .* eta 0:00 \(early [0-9.]{6}, late [0-9.]{6}, small [0-9.]{6}\) "'
check "and is no longer than the terminal is wide" '[ "$(terminal 70 | wc -l)" = 20 ] && terminal 70 | awk "length > 69 { exit 1 }"'
