# A run saves into a folder of its own: never over the checkpoints of another.
. "$TESTS/run/lib.bash"
make_small p.plan
run() { "$RELEASE/prun" p.plan --data random "$@"; }
run --steps 2 --save d --save-every 1 2>err && run --steps 1 --save x 2>err || exit 2
before=$(find d -type f -exec sha1sum {} + | sort)
whole() { [ "$(find d -type f -exec sha1sum {} + | sort)" = "$before" ]; }
say="error: --save 'd': it holds checkpoints of another run, the newest of step 2; go on from there with --resume d, or save into another folder"
check "a fresh run is refused before it trains" 'refused 1 "$say" run --steps 1 --save d --log l && whole && [ ! -e l ]'
check "a run resumed from elsewhere too" 'refused 1 "$say" run --steps 3 --resume x --save d && whole'
check "a folder with 'latest' alone too" 'mkdir m && echo mine >m/latest && refused 1 "it has a file '"'latest'"'" run --steps 1 --save m && [ "$(cat m/latest)" = mine ]'
check "what a killed first save left is no checkpoint" 'mkdir -p k/step-00000001.tmp && run --steps 1 --save k 2>err && [ "$(ls k | tr "\n" " ")" = "latest lock step-00000001 " ]'
check "an empty folder will do" 'mkdir new && run --steps 1 --save new 2>err && [ -s new/latest ]'
check "resumed from it, by another name, a run goes on in it" 'ln -s d same && run --steps 3 --resume same --save ./d 2>err && [ "$(cat d/latest)" = step-00000003 ]'
check "resumed from a checkpoint of it, a run goes on in it" 'run --steps 4 --resume d/step-00000002/ --save d 2>err && [ "$(cat d/latest)" = step-00000004 ]'
check "resumed from elsewhere, a run begins a new folder" 'run --steps 3 --resume x --save y 2>err && [ "$(cat y/latest)" = step-00000003 ]'
