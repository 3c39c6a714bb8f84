# What a run may not pass over: labels that are not there, a rate that has ended, files that
# cannot be opened; and the line it always ends with.
. "$TESTS/run/lib.bash"
cat >still.pmodel <<'MODEL'
model still {
  dim batch = 4, feature = 3, class = 2
  optimizer sgd { lr = 0.1 }
  input x[batch, feature]  : f32
  input label[batch]       : i32
  minimize cross_entropy(fc: linear(x, class), label, ignore = 9)
}
MODEL
plan() { "$RELEASE/pplan" plan still.pmodel -o "$@" >/dev/null || exit 2; }
plan p.plan -c laptop1
plan cut.plan -c laptop1 --with 'microbatches = 2'
plan ranks.plan -c laptop4 --with 'mesh dp = 4'

# safetensors NAME DTYPE SHAPE BYTES: a file of one tensor, its data from standard input.
safetensors() {
    local head="{\"$1\":{\"dtype\":\"$2\",\"shape\":[$3],\"data_offsets\":[0,$4]}}" n
    n=${#head}
    printf "\\x$(printf %x $((n % 256)))\\x$(printf %x $((n / 256)))\\0\\0\\0\\0\\0\\0%s" "$head"
    cat
}
labels() { for l; do printf "\\x$l\\0\\0\\0"; done | safetensors label I32 $# $((4 * $#)); }
head -c 96 /dev/zero | safetensors x F32 8,3 96 >x8
head -c 48 /dev/zero | safetensors x F32 4,3 48 >x4
labels 9 9 9 9 9 9 9 9 >none8
labels 9 9 9 9 >none4
labels 9 9 9 1 >one4
train() { prun "$1" --data x="$2" --data label="$3" "${@:4}"; }
check "no valid label in a batch" 'refused 1 "no valid label in the batch of step 1: input '"'label'"'" train p.plan x8 none8 --log l && [ ! -s l ]'
check "nor in any micro-batch" 'refused 1 "no valid label in the batch of step 1" train cut.plan x8 none8'
check "nor at any rank, which one of them says" 'refused 1 "no valid label in the batch of step 1: input '"'label'"'" train ranks.plan x8 none8 && [ "$(grep -c error: said)" = 1 ]'
check "nor in their held-out data" 'refused 1 "step 1: no valid label in all 8 samples" train ranks.plan x4 one4 --eval x=x8 --eval label=none8 && [ "$(grep -c error: said)" = 1 ]'
check "a rank without one is fine while another has one" 'train ranks.plan x4 one4 --log l 2>said && train p.plan x4 one4 --log one 2>said && [ "$(field loss l)" = "$(field loss one)" ]'
# Of some of these orders the first micro-batch has none, of others the second.
for seed in 1 2 3 4 5 6; do
    check "micro-batches without one are fine while another has one, seed $seed" 'train cut.plan x4 one4 --seed $seed --log l 2>said && [ "$(field loss l)" != 0 ]'
done
check "no valid label in the held-out data" 'refused 1 "step 1: no valid label in all 8 samples of the held-out data: input '"'label'"'" \
    train p.plan x4 one4 --eval x=x8 --eval label=none8'
check "one in all of them will do" 'train p.plan x4 one4 --eval x=x4 --eval label=one4 2>said && grep -q "held-out loss 0.[1-9]" said'

# The end of the decay.
decay=(--data random --set decay=linear --set steps=3)
check "steps after the decay are said, with their rate" 'prun p.plan "${decay[@]}" --set min_lr=0.01 --steps 5 --log l 2>said &&
    grep -q "note: the run has 5 steps, but .* at its .steps., 3: those after it have a rate of 0.01" said && [ "$(field lr l | tail -n 1)" = "$(field lr l | sed -n 3p)" ]'
check "where they would do nothing, they are refused" 'refused 2 "those after it have a rate of 0 (min_lr)" prun p.plan "${decay[@]}" --steps 4'
check "as many steps as the decay has need no word" 'prun p.plan "${decay[@]}" --steps 3 2>said && ! grep -q "decay" said'

check "a warm-up that leaves no step to the decay is said" 'prun p.plan "${decay[@]}" --set warmup=3 2>said &&
    grep -q "note: the rate never decays: the optimizer.s .warmup. is 3 and its .steps. 3" said'

# The last line, in a pipe and without a log.
check "a run ends with its loss, and samples where there are no tokens" 'prun p.plan --data random --steps 2 2>&1 | grep -qE "^trained: step 2 of 2, loss [0-9.]+, [0-9.]+ samples/s$"'
make_plan g.plan
make_text t.txt 200
check "or tokens" 'prun g.plan --data t.txt --steps 2 2>&1 | grep -qE "^trained: step 2 of 2, loss [0-9.]+, [0-9.]+ tokens/s$"'
check "the heap is known" '"$RELEASE/prun" p.plan --data random --steps 1 2>&1 | grep -q "heap at most [1-9]"'
check "or it is said that it is not" 'prun p.plan --data random --steps 1 2>&1 | grep -q "heap not known under a sanitizer"'

# A file that cannot be opened is a mistake in the input.
nothing() { check "$1 that is not there" 'refused 1 nothing "${@:4}"' "$@"; }
nothing "a plan" prun nothing.plan --data random --steps 1
nothing "a cluster" prun still.pmodel -c nothing --data random --steps 1
nothing "data" prun g.plan --data nothing.txt --steps 1
nothing "a tensor" prun p.plan --data x=nothing --data label=one4 --steps 1
nothing "held-out data" prun g.plan --data t.txt --eval nothing.txt --steps 1
nothing "a checkpoint" prun p.plan --data random --steps 1 --resume nothing
nothing "a folder of includes" prun p.plan -I nothing --data random --steps 1
{ echo 'include "nothing.pmodel"'; cat still.pmodel; } >included.pmodel
nothing "an include" prun included.pmodel -c laptop1 --data random --steps 1
