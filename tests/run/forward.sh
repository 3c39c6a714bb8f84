# A model without a loss runs forward, once over its data.
. "$TESTS/run/lib.bash"
cat >fwd.pmodel <<'END'
model fwd {
  dim batch = 6, pixel = 6, hidden = 8, class = 3
  param dtype = f64
  precision { compute = dtype }
  input image[batch, pixel] : f64
  h = relu(fc1: linear(image, hidden))
  logits = fc2: linear(h, class)
  output logits
}
model trained {
  dim batch = 6, pixel = 6, hidden = 8, class = 3
  precision { compute = f64 }
  optimizer sgd { lr = 0.1, momentum = 0.9 }
  input image[batch, pixel] : f64
  input label[batch] : i32
  h = relu(fc1: linear(image, hidden))
  minimize cross_entropy(fc2: linear(h, class), label)
}
END
plan() { local out=$1; shift; "$RELEASE/pplan" plan fwd.pmodel -c laptop1 -o "$out" "$@" >/dev/null 2>said || { cat said; exit 2; }; }
reals() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t f8 -w8; }
plan whole.plan --model fwd
plan cut.plan --model fwd -D batch=4 --with 'microbatches = 2'

prun whole.plan --data random --steps 1 --dump image@1=six --dump fc2@1=want --dump fc1@1=before --dump h@1=after --dump weights@0=w0 2>said || cat said
check "what was done is said" 'grep -q "forward: 6 samples in 1 batch," said'
check "an output has its numbers" '[ "$(reals want | wc -l)" -eq 18 ]'
check "a value overwritten in place is copied before" '[ "$(reals before | awk "\$1 < 0" | wc -l)" -gt 5 ] &&
    paste <(reals before) <(reals after) | awk "{ want = \$1 < 0 ? 0 : \$1; if (want != \$2) exit 1 }"'
check "six samples in batches of 4: the last has two rows" 'prun cut.plan --data image=six --dump fc2@1=a --dump fc2@2=b --dump samples@2=s 2>said &&
    grep -q "forward: 6 samples in 2 batches" said && [ "$(reals b | wc -l)" -eq 6 ] && [ "$(integers s | tr "\n" " ")" = "4 5 " ]'
check "and the same numbers" 'cat <(reals a) <(reals b) | paste - <(reals want) | awk "(\$1 - \$2) ^ 2 > 1e-24 { exit 1 }"'
check "steps limit the batches" 'prun cut.plan --data image=six --steps 1 2>said && grep -q "forward: 4 samples in 1 batch, .*; 2 samples not used" said'
check "more steps than batches are refused" 'refused 2 "--steps 3, but the data hold 2 batches of 4" prun cut.plan --data image=six --steps 3'
check "random data need steps" 'refused 2 "random data have no end: give --steps" prun cut.plan --data random'
for o in "--save x" "--eval random" "--set lr=1" "--log l"; do
    check "${o%% *} is refused" 'refused 2 "${o%% *} has no effect: the model minimizes nothing" prun cut.plan --data random --steps 1 $o'
done
# Outputs by their names, which may be other words than their paths; one is a view, one an input, one's name is another value's path.
cat >named.pmodel <<'END'
model named {
  dim batch = 4, pixel = 6, class = 3, flat = pixel
  input image[batch, pixel] : f32
  x = linear(image, pixel)
  repeat 2 as h { x = linear(relu(x), pixel) }
  cls = head: linear(x, class)
  y = rename(x, pixel = flat)
  output cls, x, y, image
}
END
named() { "$RELEASE/pplan" plan named.pmodel -c laptop4 --with "$2" -o $1.plan >/dev/null || exit 2; }
named named 'devices = [0]; microbatches = 2'
named stages 'mesh pp = 2; devices = [0, 1]; stage before h[1]; microbatches = 2'
# bytes FILE: of its one tensor.
bytes() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1"; }
outputs="the model's outputs are 'cls' (of path 'head'), 'x' (of path 'h[1].x'), 'y', 'image'"
for p in named stages; do
    check "$p: an output is had by its name, and the file has it under that" '"$RELEASE/prun" $p.plan --data random --steps 1 --dump cls@1=a --dump head@1=b 2>said && cmp <(bytes a) <(bytes b) && [ "$(bytes a | wc -c)" = 48 ] && grep -q "{\"cls\":" a && grep -q "{\"head\":" b' || cat said
    check "$p: so is one that is a view of another, or an input" '"$RELEASE/prun" $p.plan --data random --steps 1 --dump y@1=a --dump "h[1].x@1=b" --dump image@1=c 2>said && cmp <(bytes a) <(bytes b) && [ "$(bytes c | wc -c)" = 96 ] && ! cmp -s <(bytes a) <(bytes c)'
    check "$p: a path comes before a name, which is said" '"$RELEASE/prun" $p.plan --data random --steps 1 --dump x@1=a --dump "h[1].x@1=b" 2>said && ! cmp -s <(bytes a) <(bytes b) && [ "$(grep -cF "note: --dump '"'x'"': written is the value of that path; the model'"'s output 'x' is 'h[1].x'"'" said)" = 1 ]'
    check "$p: for what is unknown all outputs are named, once" 'refused 2 "$outputs" "$RELEASE/prun" $p.plan --data random --steps 1 --dump nothing@1=z && [ "$(grep -c "outputs are" said)" = 1 ] && [ ! -e z ]'
    check "$p: beside what is near" 'refused 2 "did you mean '"'cls'? "'$outputs" "$RELEASE/prun" $p.plan --data random --steps 1 --dump clss@1=z'
done
check "stages give what one rank gives" '(for f in cls y; do "$RELEASE/prun" named.plan --data random --steps 1 --dump $f@1=one 2>said && "$RELEASE/prun" stages.plan --data random --steps 1 --dump $f@1=two 2>said && cmp one two || exit 1; done)'

# Weights of a training run, moments left aside.
sed -i 's/^model fwd/model other/; s/^model trained/model fwd/' fwd.pmodel
plan train.plan --model fwd
sed -i 's/^model fwd/model trained/; s/^model other/model fwd/' fwd.pmodel
prun train.plan --data random --steps 3 --save d --dump weights@3=w3 2>said || cat said
check "weights come from a checkpoint" 'prun whole.plan --data image=six --resume d --dump weights@0=w --dump fc2@1=other 2>said && cmp w w3 && ! cmp -s other want'
check "a seed makes the same weights for both" 'prun train.plan --data random --steps 1 --dump weights@0=t0 2>said && cmp t0 w0'

# A loss that is an output, not minimized: labels are counted over each batch.
cat >loss.pmodel <<'END'
model loss {
  dim batch = 6, pixel = 6, class = 3
  precision { compute = f64 }
  input image[batch, pixel] : f64
  input label[batch] : i32
  ce = cross_entropy(fc: linear(image, class), label)
  output ce
}
END
for m in 1 3; do
    "$RELEASE/pplan" plan loss.pmodel -c laptop1 --with "microbatches = $m" -o loss$m.plan >/dev/null || exit 2
    prun loss$m.plan --data random --steps 2 --dump ce@1=a$m --dump ce@2=b$m 2>said || cat said
done
check "a loss as output is that of its batch" 'paste <(reals a1) <(reals a3) <(reals b1) <(reals b3) |
    awk "{ if (!(\$1 > 0.3 && \$1 < 4 && (\$1 - \$2) ^ 2 < 1e-24 && (\$3 - \$4) ^ 2 < 1e-24 && \$1 != \$3)) exit 1 } END { exit NR != 1 }"'
