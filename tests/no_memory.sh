# pplan when one call for memory fails, whichever it is: status 3, one message that says what could not
# be had, and no file, or the one that was there; or the call did not matter, and nothing is different.
. "$TESTS/run/lib.bash"
. "$TESTS/run/scarce.bash"
most=${NO_MEMORY_MOST:-1000000}
pplan() { echo "$RELEASE/pplan" "$@"; }
model="$MODELS/mlp.pmodel -c laptop1 -D batch=4 -D pixel=8 -D hidden=8 -D class=4 -D dtype=f32"

begin() { echo old >new.plan; }
# What was printed and written is that of a run with memory enough, or there is one message.
sound() {
    [ -z "$(find . -name '*tmp')" ] || return 1
    [ $status -ne 0 ] || { cmp -s out good.out && cmp -s new.plan good.plan; return; }
    [ "$(wc -l <said)" = 1 ] && { cmp -s new.plan good.plan || [ "$(cat new.plan)" = old ]; }
}

# all NAME LEAST COMMAND...
all() {
    local name=$1 least=$2
    shift 2
    begin
    "$@" >good.out 2>/dev/null || { echo "not ok $name: it fails with memory enough"; return; }
    cp new.plan good.plan
    sweep heap "" "$most" "$@"
    swept "$name" "$least"
}
all "plan" 80 $(pplan plan $model)
all "plan -o" 80 $(pplan plan $model -o new.plan)
included="$MODELS/tiny/tiny_gpt2.pmodel -c laptop1 -D batch=4 -D seq=8 -D vocab=16 -D hidden=8 -D heads=2"
all "plan -o, files included" 80 $(pplan plan $included -D layers=1 -o new.plan)
# A plan that outgrows what a stream holds at first.
long=(-D layers=100 --with "devices = [0]; microbatches = 1; $(for ((i = 0; i < 100; i++)); do echo "recompute h[$i].attn full; recompute h[$i].mlp full;"; done)")
last=30
all "plan -o, the end of a long plan" 20 $(pplan plan $included) "${long[@]}" -o new.plan
check "it is long" '[ "$(wc -c <good.plan)" -gt 8192 ]'
last=
all "plan --json" 200 $(pplan plan $model --json)
"$RELEASE/pplan" plan $model -o p.plan >/dev/null
all "dump --program" 40 $(pplan dump p.plan --program)
all "dump --memory --json" 200 $(pplan dump p.plan --memory --json)
left=1
all "none left: plan -o" 80 $(pplan plan $model -o new.plan)
sweep map "" "$most" $(pplan plan $model -o new.plan)
check "pplan maps nothing by itself" '[ $nrun -eq 0 ]'
