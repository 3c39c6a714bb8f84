# Graphs of kernels, by prun on the emulator of GPUs: steps that replay them come to the bits of steps that do not, under ways to share
# a model, with rates, dropout, evaluations, dumps and a resumed run between them; what has no graphs says so.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
steps=7                                              # of which the first five are measured, and so issued one by one

# replayed NAME MODEL DEFINES RULES OPTION...: the run with graphs and the one without, with all that they write.
replayed() {
    local name=$1 how
    plan $name.plan "$2" "$3" "$4"
    for how in plain graphs; do
        train cudaemu $name.plan $name.$how --save $name.$how.d --set warmup=6 "${@:5}" $([ $how = plain ] || echo --graphs) || return 1
    done
    cmp <(figures $name.plain) <(figures $name.graphs) && same $name.plain.d/step-0000000$steps $name.graphs.d/step-0000000$steps
}

graphs() { sed -nE 's/^memory: .*; ([0-9]+) graphs, .*/\1/p' said; }

one_rank() {
    check "a step of one micro-batch" 'replayed one gpt2 "layers=2 drop=0.1" "devices = [0]" --eval e.txt --eval-every 1'
    check "of four, of which each is another" 'replayed four gpt2 "layers=2 drop=0.1" "devices = [0]; microbatches = 4"'
    check "in bf16" 'replayed bf16 llama "layers=2 dtype=bf16" "devices = [0]; microbatches = 2"'
    check "they are launched: one that fails ends the run, and names an instruction" 'CUDAEMU_FAIL=cudaGraphLaunch:3=1 refused 3 "error: rank 0, cudaemu 0: cudaGraphLaunch: " "$PRUN" four.plan --device cudaemu --data t.txt --steps $steps --graphs && grep -q "at instruction [0-9]" said'
    check "one for which there is no memory ends it before step 0" 'CUDAEMU_FAIL=cudaGraphInstantiate:1=2 refused 3 "error: rank 0, cudaemu 0: a graph of kernels: out of memory" "$PRUN" four.plan --device cudaemu --data t.txt --log none --graphs && ! grep -qs step none'
    plan eight.plan gpt2 "layers=2 drop=0.1" "devices = [0]; microbatches = 8"
    check "eight micro-batches have no more graphs than four" 'steps=1 train cudaemu four.plan x --graphs && four=$(graphs) && steps=1 train cudaemu eight.plan x --graphs && [ "$four" -gt 3 ] && [ "$(graphs)" = "$four" ]'
    check "what is dumped is copied as it is made" 'for how in "" --graphs; do train cudaemu four.plan x $how --dump "h[0].attn.dropout@7=drop$how" --dump grads@6=grads$how || break; done && cmp drop drop--graphs && cmp grads grads--graphs'
    check "a resumed run goes on" 'steps=14 train cudaemu four.plan on --graphs --set warmup=6 --resume four.plain.d && steps=14 train cudaemu four.plan off --set warmup=6 --resume four.graphs.d && cmp <(figures on) <(figures off)'
}

many_ranks() {
    local rules
    rules='mesh dp = 2, tp = 2; split heads, ffn, vocab by tp; split seq by tp; microbatches = 2; shard optimizer by dp'
    check "between collectives, with late sums and shards" 'replayed tensors gpt2 "layers=2 drop=0.1" "$rules" --ranks threads'
    check "so are those of processes" 'train cudaemu tensors.plan x --set warmup=6 --graphs && cmp <(figures x) <(figures tensors.plain)'
    rules='mesh pp = 2, dp = 2; stage before h[1]; microbatches = 4; schedule = "1f1b"'
    check "with values that are sent before the last of a stage is made" 'replayed values gpt2 "layers=2" "mesh pp = 2; stage before h[1].attn.k; devices = [0, 1]; microbatches = 2" --ranks threads'
    check "in slots, between messages" 'CUDAEMU_SEED=9 replayed stages gpt2 "layers=2 drop=0.1" "$rules" --ranks threads'
}

refusals() {
    printf 'model fwd {\n dim batch = 4, pixel = 6\n precision { compute = f32 }\n input image[batch, pixel] : f32\n y = relu(image)\n output y\n}\n' >fwd.pmodel
    "$RELEASE/pplan" plan fwd.pmodel -c machine.pcluster:cores --with "devices = [0]" -o fwd.plan >said 2>&1 || { cat said; return 1; }
    check "the cpu has none" 'refused 2 "error: --graphs: device '"'cpu'"' has none" "$PRUN" one.plan --data t.txt --graphs'
    check "a model without a loss has no steps" 'refused 2 "error: --graphs has no effect: it is for the steps of a training" "$PRUN" fwd.plan --device cudaemu --data random --steps 2 --graphs'
    check "a trace takes the place of graphs" 'refused 2 "error: --graphs has no effect: --trace times each instruction" "$PRUN" one.plan --device cudaemu --data t.txt --graphs --trace x.json'
}

all() { one_rank && many_ranks && refusals || echo "not ok a run of these tests failed"; }
make_text t.txt $((64 * 16 + 1))
make_text e.txt 200 3
on_gpus all
