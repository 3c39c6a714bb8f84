# L08: whatever is missing from a checkpoint or wrong in it is named before step 1.
. "$TESTS/run/lib.bash"
make_plan p.plan -D hidden=8 -D heads=2
make_text t.txt 400
"$RELEASE/prun" p.plan --data t.txt --steps 2 --save d 2>err || exit 1
c=d/step-00000002
no() {                               # NAME STATUS TEXT [PLAN]: the checkpoint in x is refused
    check "$1" 'refused $2 "$3" prun "${4:-p.plan}" --data t.txt --steps 3 --resume x --log l && [ ! -e l ]' "$@"
}
fresh() { rm -rf x && cp -r d x; }
check() { local name=$1 what=$2; shift 2; if eval "$what"; then echo "ok $name"; else echo "not ok $name"; fi; }

fresh; mv x/step-00000002 x/step-00000007
no "a step that does not exist" 1 "x/step-00000002/state.json'"
rm -rf x
no "a folder that does not exist" 1 "no complete checkpoint in 'x'"
for f in weights moments; do
    fresh; rm x/step-00000002/$f.safetensors
    no "$f missing" 1 "x/step-00000002/$f.safetensors': it is missing"
    fresh; printf '\377' | dd of=x/step-00000002/$f.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
    no "a flipped byte in $f" 1 "$f.safetensors': it is damaged: its check sum does not match"
    fresh; truncate -s -1 x/step-00000002/$f.safetensors
    no "$f cut short" 1 "$f.safetensors': it has"
done
fresh; sed -i 's/"samples": 16/"samples": 17/' x/step-00000002/state.json
no "a changed state" 1 "state.json': it is damaged: its check sum does not match"
fresh; truncate -s 100 x/step-00000002/state.json
no "a state cut short" 1 "state.json': it is damaged: not JSON"

# Another shape, another model, another optimizer, one tensor more or less: each is named.
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=1 -D hidden=16 -D heads=2 -o wide.plan >/dev/null || exit 2
fresh
no "another shape" 1 "tensor 'h[0].attn.out.b' is f32 [8], but the plan has f32 [16]" wide.plan
no "what was made with other sizes is said first" 1 "error: the checkpoint was made with other sizes: 4 where the plan has 8, 8 where the plan has 16, 16 where the plan has 32; 20 of 20 tensors differ" wide.plan
check "and few rows follow" '[ "$(grep -c "but the plan has f32" said)" = 3 ]'
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=2 -D hidden=8 -D heads=2 -o deep.plan >/dev/null || exit 2
no "a layer too few" 1 "16 of the plan's 36 tensors are not in it: h[1].* (16 tensors)" deep.plan
check "which is one line, not one a tensor" '[ "$(grep -c "^error:" said)" = 1 ]'
"$RELEASE/prun" deep.plan --data random --steps 1 --save deep 2>err || exit 2
cp -r x shallow && rm -rf x && cp -r deep x
no "a layer too many" 1 "16 of its 36 tensors are not in the plan: h[1].* (16 tensors)" p.plan
rm -rf x && mv shallow x
sed -E 's/model tiny_gpt2/model other/; s/wpe/wqe/g; s/include "\.\.\/std/include "'"${MODELS//\//\\/}"'\/std/' "$MODELS/tiny/tiny_gpt2.pmodel" >other.pmodel
"$RELEASE/pplan" plan other.pmodel -c laptop1 -D layers=1 -D hidden=8 -D heads=2 -o other.plan >/dev/null || exit 2
no "another model" 1 "is of model 'tiny_gpt2', but the plan is for 'other'" other.plan
sed -i 's/model other/model tiny_gpt2/' other.pmodel
"$RELEASE/pplan" plan other.pmodel -c laptop1 -D layers=1 -D hidden=8 -D heads=2 -o renamed.plan >/dev/null || exit 2
no "a renamed tensor is missing" 1 "1 of the plan's 20 tensors are not in it: 'wqe'" renamed.plan
no "and its old name is too many" 1 "1 of its 20 tensors are not in the plan: 'wpe'" renamed.plan
