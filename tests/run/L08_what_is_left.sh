# L08: a marked checkpoint that cannot be resumed is refused, and those that can be
# are named: the choice to repeat steps is the user's.
. "$TESTS/run/lib.bash"
make_small p.plan
"$RELEASE/prun" p.plan --data random --steps 3 --save d --save-every 1 --keep 3 2>err || exit 2
resume() { prun p.plan --data random --steps 4 --resume x --save x --log l; }
newest=x/step-00000003 help="help: complete in 'x': step 2, step 1; go on from the newest with --resume x/step-00000002"
damage() { printf '\377' | dd of="$1" bs=1 seek=300 conv=notrunc 2>/dev/null; }
fresh() { rm -rf x && cp -r d x; }
no() { text=$2; check "$1" 'refused 1 "$text" resume && grep -qF "$help" said && [ ! -e l ] && [ "$(cat x/latest)" = step-00000003 ]'; }

fresh; damage $newest/weights.safetensors
no "weights with a wrong byte" "$newest/weights.safetensors': it is damaged: its check sum does not match"
fresh; rm $newest/state.json
no "no state" "$newest/state.json': it is missing: the checkpoint is incomplete"
fresh; rm -r $newest
no "no folder" "$newest/state.json': it is missing: the checkpoint is incomplete"
fresh; rm $newest/state.json; damage x/step-00000002/moments.safetensors
help="help: complete in 'x': step 1; go on from the newest with --resume x/step-00000001"
no "one that is damaged is not offered" "$newest/state.json': it is missing"
check "the one offered is resumed, and saved into the same folder" 'prun p.plan --data random --steps 4 --resume x/step-00000001 --save x --log l 2>said &&
    [ "$(field step l | tr "\n" " ")" = "2 3 4 " ] && [ "$(cat x/latest)" = step-00000004 ]'
rm -f l
for f in x/step-*/state.json; do rm $f; done; echo step-00000003 >x/latest
help="note: no checkpoint in 'x' is complete"
no "all of them damaged" "$newest/state.json': it is missing"
fresh; rm x/latest
check "no marker, but checkpoints" 'refused 1 "no complete checkpoint in '"'x'"'" resume && grep -qF -- "--resume x/step-00000003" said'
fresh; damage $newest/weights.safetensors
check "asked for by itself, its neighbours are named" 'refused 1 "is damaged" prun p.plan --data random --steps 4 --resume $newest && grep -qF -- "--resume x/step-00000002" said'
