# What a run says where someone who is new to it would wonder: nothing is trained, kept, found or left behind in silence.
. "$TESTS/run/lib.bash"
make_plan p.plan
make_small small.plan
make_text t.txt 2000
make_text held.txt 500 7
run() { "$RELEASE/prun" p.plan --data t.txt "$@"; }
small() { "$RELEASE/prun" small.plan --data random "$@"; }

# A checkpoint is evaluated by a run that has no step left.
run --steps 2 --save c --eval held.txt --log train.log 2>said || cat said
run --steps 2 --resume c --eval held.txt --log eval.log 2>said || cat said
check "nothing to train: the held-out loss is still told" 'grep -q "nothing to train: 2 steps are done" said &&
    [ -n "$(field eval_loss eval.log)" ] && [ "$(field eval_loss eval.log)" = "$(field eval_loss train.log)" ]'
check "no data are needed for it" '"$RELEASE/prun" p.plan --steps 2 --resume c --eval held.txt --log alone.log 2>said && ! grep -q "note: the data" said && cmp eval.log alone.log'
check "nor by many ranks" '"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=1 -o four.plan >/dev/null &&
    "$RELEASE/prun" four.plan --steps 2 --resume c --eval held.txt --log many.log 2>said && cp eval.log one.log && near eval_loss 1e-6 1'
check "they are where a step is left" 'refused 2 "no data: name a file" "$RELEASE/prun" p.plan --steps 3 --resume c --eval held.txt'
check "and where nobody said how many there are" 'refused 2 "no data: name a file" "$RELEASE/prun" p.plan --resume c --eval held.txt'
check "and where samples are asked for" 'refused 2 "no data: name a file" "$RELEASE/prun" p.plan --steps 2 --resume c --eval held.txt --dump samples@2=x'

# A loss that is no number.
check "no checkpoint is promised that is not there" 'refused 1 "the step is not saved, and no checkpoint was saved yet" small --set lr=1e8 --steps 9 --save n && [ ! -e n ] && grep -q "^help: a smaller rate (.--set lr=1e+07.)" said'
check "the one that is there stands" 'refused 1 "and the last checkpoint stands" small --set lr=1e8 --steps 9 --save k --save-every 1 && [ -e k/latest ]'
check "a number that is none has no sign" '! grep -q -- -nan said'

# SPECs.
check "an input misspelt is no file of tokens" 'refused 2 "; did you mean '\''labels'\''?" "$RELEASE/prun" p.plan --data labells=x.safetensors'
check "nor is it when it is alone" 'refused 2 "; did you mean '\''image'\''?" "$RELEASE/prun" small.plan --data imag=x.safetensors'
check "a file with = in its name is a file" 'cp t.txt a=b && "$RELEASE/prun" p.plan --data a=b --steps 1 2>said'
check "a text given for an input" 'refused 1 "help: a text or a file of tokens stands without the name of an input: --data t.txt" "$RELEASE/prun" p.plan --data ids=t.txt'
"$RELEASE/prun" small.plan --data random --steps 1 --dump image@1=image.st --dump samples@1=number.st 2>said || cat said
check "a file of tensors without the names of inputs" 'refused 1 "image.st'\'' is a safetensors file: give each input its tensor of it, as INPUT=" "$RELEASE/prun" p.plan --data image.st'
check "its bytes are taken for whoever means them" '"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D seq=4 -D batch=2 -o short.plan >/dev/null && "$RELEASE/prun" short.plan --data image.st:bytes --steps 1 2>said'
check "a text in braces is a text" '{ printf "12345678{"; cat t.txt; } >braces && "$RELEASE/prun" p.plan --data braces --steps 1 2>said'
check "a tensor of another name" 'refused 1 "its tensor is named '\''image'\'', but the input is '\''label'\''" "$RELEASE/prun" small.plan --data image=image.st --data label=image.st'
"$RELEASE/prun" small.plan --data random --steps 1 --dump weights@1=weights.st 2>said || cat said
check "tensors of other names are listed" 'refused 1 "tensors is named '\''image'\'': fc1." "$RELEASE/prun" small.plan --data image=weights.st --data label=image.st'
size=$(stat -c %s image.st)
head -c $((size - 10)) image.st >cut.st
check "a file of tensors that was cut short says both sizes" 'refused 1 "cut.st: it was cut short: its header promises a file of $size bytes, but it has $((size - 10))" "$RELEASE/prun" small.plan --data image=cut.st --data label=image.st'
cat >mask.pmodel <<'END'
include "std/encoder.pmodel"
model mask {
  dim batch = 4, seq = 8, hidden = 4, heads = 1, vocab = 16
  optimizer adamw { lr = 1e-3 }
  input ids[batch, seq] : i32
  input labels[batch, seq] : i32
  input keep[batch, seq] : bool
  weight table[vocab, hidden]
  x = embed(ids, table)
  x = x + attn: encoder_attn(x, heads, 0.0, keep)
  minimize cross_entropy(head: linear(x, vocab), labels, ignore = 0)
}
END
"$RELEASE/pplan" plan mask.pmodel -c laptop1 -o mask.plan >/dev/null || exit 2
"$RELEASE/prun" mask.plan --data random --steps 1 --dump ids@1=ids.st --dump labels@1=labels.st --dump keep@1=keep.st 2>said || cat said
masked() { "$RELEASE/prun" mask.plan --data ids=ids.st --data labels=labels.st --data keep=keep.st --steps 1; }
# last FILE N: its last byte, in octal, replaced.
last() { head -c -1 "$1" >changed && printf "\\$2" >>changed && mv changed "$1"; }
check "an input of truths is called bool" 'refused 2 "keep[4, 8] : bool" "$RELEASE/prun" mask.plan --data t.txt'
check "it has data of its own" 'masked 2>said' || cat said
last keep.st 002
check "and takes 0 and 1 alone" 'refused 1 "2 cannot be a number of '\''keep'\'': its type bool holds 0..1" masked'
last keep.st 001
last labels.st 001
check "an ignored label among the classes is no exception" 'refused 1 "cannot be a label in" masked && grep -q "16 classes, so it is 0..15$" said'

# Folders.
check "a run that is refused leaves no folder" 'refused 1 "no complete checkpoint" small --steps 1 --save new --resume nosuch && [ ! -e new ]'
check "nor one that is refused late" 'refused 2 "nosuch" small --steps 1 --save new --dump nosuch@1=x && [ ! -e new ]'
check "a folder that was there stays" 'mkdir own && refused 2 "nosuch" small --steps 1 --save own --dump nosuch@1=x && [ -d own ]'
small --steps 3 --save s --save-every 1 --keep 9 2>said || cat said
check "newer work left behind is said" 'small --steps 2 --resume s/step-00000001 --save s 2>said && grep -q "note: .s. has checkpoints of later steps, up to 3; this run goes on from step 1" said'

# What is not kept, and what was not trained.
check "training without --save" 'small --steps 1 2>said && grep -q "note: what is trained is not kept: .--save DIR. keeps it" said'
check "not with it" 'small --steps 1 --save z 2>said && ! grep -q "not kept" said'
cat >f.pmodel <<'END'
model f { dim batch = 4, d = 3, c = 2
  input x[batch, d] : f32
  y = linear(x, c)
  output y }
END
"$RELEASE/pplan" plan f.pmodel -c laptop1 -o f.plan >/dev/null || exit 2
check "running forward with random weights" '"$RELEASE/prun" f.plan --data random --steps 1 2>said && grep -q "note: the weights are random, from the seed: .--resume DIR. takes trained ones" said'

# What has no fast kernel is said once, where it takes long.
conv() { cat >conv.pmodel <<END
model conv { dim batch = $1, channel = 3, height = 32, width = 32, out = 16, row = 30, col = 30
  input image[batch, channel, height, width] : f32
  a = conv2d(image, [out, row, col], kernel = 3)
  b = conv2d(a, [out, 28, 28], kernel = 3)
  output b }
END
    sed -i 's/col = 30/col = 30, row2 = 28, col2 = 28/; s/\[out, 28, 28\]/[out, row2, col2]/' conv.pmodel
    "$RELEASE/pplan" plan conv.pmodel -c laptop1 -o conv.plan >/dev/null || exit 2
    "$RELEASE/prun" conv.plan --data random --steps 1 2>said; }
check "a plain form is said once" 'conv 8 && [ "$(grep -c "note: in their plain form here, which is slow and of one thread: conv2d; " said)" = 1 ]'
check "not where it is nothing" 'conv 1 && sed -i "s/= 32/= 6/g; s/= 30/= 4/g; s/= 28/= 2/g" conv.pmodel && "$RELEASE/pplan" plan conv.pmodel -c laptop1 -o conv.plan >/dev/null && "$RELEASE/prun" conv.plan --data random --steps 1 2>said && ! grep -q plain said'
check "not for what is fast" '"$RELEASE/prun" p.plan --data t.txt --steps 1 2>said && ! grep -q plain said'

# What is asked for under other names, or where it cannot be.
check "data do not come from standard input" 'refused 2 "error: data '\''-'\'': samples are read in any order, so they cannot come from standard input" "$RELEASE/prun" p.plan --data -'
check "a file of a checkpoint is no folder of them" 'refused 1 "error: --resume '\''c/latest'\'': that is a file, but checkpoints are folders" run --steps 3 --resume c/latest && grep -qF "help: '"'--resume c'"'" said'
check "an input that has no data is named beside one that has, of --data or --eval" 'refused 2 "error: no data for input '\''label'\'' beside '\''image=image.st'\'': give it as" small --steps 1 --eval image=image.st'
mkdir folder
check "a dump cannot be a folder, which is found before step 1" 'refused 3 "cannot write '\''folder'\'': Is a directory" run --steps 2 --dump weights@2=folder --log early && [ ! -s early ]'
check "nor can a trace" 'refused 3 "cannot write '\''folder'\'': Is a directory" run --steps 2 --trace folder --log early && [ ! -s early ]'

# Outputs of a model that is trained, and of one that is not.
sed 's/^  minimize/  chance = softmax(logits)\n  output chance\n  minimize/' "$MODELS/mlp.pmodel" >chance.pmodel
sed '/^  minimize/d; /^  optimizer/d; /input label/d' chance.pmodel >forward.pmodel
sizes="-D batch=4 -D pixel=8 -D hidden=8 -D class=4 -D dtype=f32"
"$RELEASE/pplan" plan chance.pmodel -c laptop1 $sizes -o chance.plan >/dev/null && "$RELEASE/pplan" plan forward.pmodel -c laptop1 $sizes -o forward.plan >/dev/null 2>said || { cat said; exit 2; }
check "steps of a training have no output that the loss does not need, and it is said how to have it" 'refused 2 "plan the model without '\''minimize'\'', and run that with this --dump: '\''--resume DIR'\'' gives it the weights" "$RELEASE/prun" chance.plan --data random --steps 1 --dump chance@1=x'
check "so it is had" '"$RELEASE/prun" chance.plan --data random --steps 1 --save trained 2>said && "$RELEASE/prun" forward.plan --data random --steps 1 --resume trained --dump chance@1=x 2>said && [ -s x ] && ! grep -q "is kept" said'
check "a forward run that keeps nothing says so" '"$RELEASE/prun" forward.plan --data random --steps 1 2>said && grep -q "^note: nothing of what the model gives is kept: .--dump chance@1=FILE. has output .chance. of the first batch$" said'

# Streams that are closed: no message goes into a file instead.
for p in small four; do
    [ $p = small ] && data=random || data=t.txt
    check "$p: without standard streams a log has what it has with them" '"$RELEASE/prun" $p.plan --data $data --steps 2 --eval $data --eval-every 1 --log open.log 2>said && (exec <&- >&- 2>&-; "$RELEASE/prun" $p.plan --data $data --steps 2 --eval $data --eval-every 1 --log closed.log) &&
        cmp <(figures open.log) <(figures closed.log)'
done

# Files that cannot be written are found before ranks start, and names may have any letters.
check "a log that cannot be is refused by one process" 'refused 3 "error: cannot write the log '\''folder'\'': Is a directory" "$RELEASE/prun" four.plan --data t.txt --steps 2 --log folder && [ "$(wc -l <said)" = 1 ] &&
    refused 3 "error: cannot write the log '\''nowhere/l'\'': No such file or directory" "$RELEASE/prun" four.plan --data t.txt --steps 2 --log nowhere/l && [ "$(wc -l <said)" = 1 ]'
odd="für @1 = \"x\""
mkdir "$odd"
check "files of any name" 'run --steps 2 --save "$odd/s" --log "$odd/log" --dump "weights@1=$odd/w@2=3" --trace "$odd/t" 2>said && [ -s "$odd/s/latest" ] && [ -s "$odd/log" ] && [ -s "$odd/w@2=3" ] && [ -s "$odd/t" ] &&
    run --steps 3 --resume "$odd/s" 2>said' || cat said

# A model that has no inputs.
printf 'model bare {\n  dim h = 4\n  optimizer sgd { lr = 0.1 }\n  weight w[h]\n  minimize sum(w * w, over = h)\n}\n' >bare.pmodel
check "needs no data, but a number of steps" '"$RELEASE/pplan" plan bare.pmodel -c laptop1 -o bare.plan >/dev/null && "$RELEASE/prun" bare.plan --steps 3 2>said && grep -q "^trained: step 3 of 3" said && refused 2 "give --steps" "$RELEASE/prun" bare.plan'
