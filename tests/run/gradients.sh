# A model with a loss and no optimizer: its held-out loss, its gradients, and no run that shows nothing.
. "$TESTS/run/lib.bash"
model() { cat <<END
model still {
  dim batch = 4, pixel = 3, class = 2
  precision { compute = f64 }
  $1
  input image[batch, pixel] : f64
  input label[batch]        : i32
  minimize cross_entropy(fc: linear(image, class), label)
}
END
}
plan() { model "$2" >m.pmodel && "$RELEASE/pplan" plan m.pmodel -c "${3:-laptop1}" -o "$1" >/dev/null || exit 2; }
plan trained.plan 'optimizer adamw { lr = 0.1 }'
plan still.plan ''
plan four.plan '' laptop4
still() { "$RELEASE/prun" still.plan "$@"; }
reals() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t f8 -w8; }

check "what could show nothing is refused, with ways out" 'refused 2 "training has no effect: the model has no optimizer" still --data random --steps 1 && grep -q "^help: .--eval SPEC." said'
check "nor is it shown by a checkpoint alone" 'refused 2 "the model has no optimizer" still --data random --steps 1 --resume x'
for o in "--save x" "--set lr=1"; do
    check "${o%% *} is refused" 'refused 2 "${o%% *} has no effect: the model has no optimizer" still --data random --steps 1 --log l $o'
done

"$RELEASE/prun" trained.plan --data random --steps 1 --dump grads@1=want --dump fc@1=value --save d --eval random --log trained.log 2>said || cat said
check "gradients and values of a step, as where it trains" 'still --data random --steps 1 --dump grads@1=got --dump fc@1=fc 2>said && cmp got want && cmp fc value'
check "that nothing is trained is said" 'grep -q "a step computes the loss and gradients, and trains nothing" said && grep -q "^note: the weights are random" said && grep -q "^computed: step 1 of 1" said'
check "steps change nothing" 'still --data random --steps 3 --dump weights@0=w0 --dump weights@3=w3 2>said && cmp w0 w3'
check "a log of the losses is enough" 'still --data random --steps 2 --log l 2>said && [ "$(field step l | tr "\n" " ")" = "1 2 " ]'
check "the held-out loss needs no other data" 'still --eval random --resume d --log still.log 2>said && [ "$(field eval_loss still.log)" = "$(field eval_loss trained.log)" ] && grep -q "^weights from" said && ! grep -q nothing said'
check "nor do many ranks" '"$RELEASE/prun" four.plan --eval random --resume d --log many.log 2>said && cp still.log one.log && near eval_loss 1e-12 1'
check "gradients need data" 'refused 2 "no data: name a file" still --eval random --dump grads@1=x'
check "gradients of weights from a checkpoint, by many ranks" 'still --data random --steps 1 --resume d --dump grads@1=one 2>said &&
    "$RELEASE/prun" four.plan --data random --steps 1 --resume d --dump grads@1=four 2>said && ! cmp -s one want &&
    paste <(reals one) <(reals four) | awk "(\$1 - \$2) ^ 2 > 1e-24 { exit 1 } END { exit NR != 8 }"'
