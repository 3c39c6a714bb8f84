# L03: 'latest' decides which checkpoint is loaded, never the largest number.
. "$TESTS/run/lib.bash"
make_plan p.plan -D hidden=8 -D heads=2
make_text t.txt 400
"$RELEASE/prun" p.plan --data t.txt --steps 5 --save d --save-every 1 --keep 5 2>err || exit 1
resume() { ${on:+"$RELEASE"/}prun p.plan $on --data t.txt --steps 6 --resume d "$@"; }

mkdir d/step-00000020
echo step-00000003 >d/latest
marker_wins() {
    check "the marker wins over larger numbers, which are named ($device)" 'resume 2>said && grep -q "resumed from .d/step-00000003. after step 3" said &&
        grep -q "ignoring .d/step-00000020.: .d/latest. names step 3" said && grep -q "ignoring .d/step-00000005." said'
}
on_devices marker_wins
rm d/step-00000003/moments.safetensors
check "a marked checkpoint without one of its files is an error that names it" 'refused 1 "d/step-00000003/moments.safetensors" resume'
rm d/step-00000003/state.json
check "without its state it is incomplete" 'refused 1 "d/step-00000003/state.json'"'"': it is missing: the checkpoint is incomplete" resume'
echo nonsense >d/latest
check "a marker that names no step is an error" 'refused 1 "d/latest'"'"': it names no step" resume'
rm d/latest
check "no marker: no complete checkpoint" 'refused 1 "no complete checkpoint in '"'d'"'" resume'
