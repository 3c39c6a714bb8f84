# Plans on GPUs, by prun on the emulator: the losses, gradients and weights of the cpu, with one rank and many, as threads and as
# processes; evaluation, forward runs and dumps; checkpoints that one takes over from the other.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
COMPARE=$ASAN/tests/tools/compare_files

one_rank() {
    local m
    plan gpt2.plan gpt2 "layers=2 drop=0.1" "devices = [0]" && plan llama.plan llama "layers=2" "devices = [0]"
    for m in gpt2 llama; do
        train cpu $m.plan $m.cpu --eval e.txt --dump grads@1=$m.cpu.g --dump weights@3=$m.cpu.w --dump moments@3=$m.cpu.m &&
            train cudaemu $m.plan $m.gpu --eval e.txt --dump grads@1=$m.gpu.g --dump weights@3=$m.gpu.w --dump moments@3=$m.gpu.m || return 1
        check "$m: losses and norms of three steps are the cpu's" 'agree $m.gpu $m.cpu 1e-5'
        check "$m: so is the held-out loss" 'paste <(field eval_loss $m.gpu) <(field eval_loss $m.cpu) | awk "{ d = \$1 / \$2 - 1; exit !(d < 1e-5 && d > -1e-5) }"'
        check "$m: so are gradients, weights and moments" '"$COMPARE" $m.gpu.g $m.cpu.g 1e-4 1e-7 && "$COMPARE" $m.gpu.w $m.cpu.w 1e-4 1e-6 && "$COMPARE" $m.gpu.m $m.cpu.m 1e-3 1e-8'
    done
    plan padded.plan gpt2 "layers=2 drop=0.1" "devices = [0]; pad vocab to 96" && train cudaemu padded.plan padded
    check "a padded vocabulary has no part in them" 'agree padded gpt2.cpu 1e-5'
    plan bf16.plan gpt2 "layers=2 dtype=bf16" "devices = [0]" && train cpu bf16.plan bf16.cpu && train cudaemu bf16.plan bf16.gpu
    check "in bf16 they are within 1e-2" 'agree bf16.gpu bf16.cpu 1e-2'
    train cudaemu gpt2.plan again && train cudaemu gpt2.plan once
    check "the same run comes to the same bits" 'cmp <(figures again) <(figures once)'
    check "what a dropout kept is the same" 'train cpu gpt2.plan x --dump "h[0].attn.dropout@2=drop.cpu" && train cudaemu gpt2.plan x --dump "h[0].attn.dropout@2=drop.gpu" && "$COMPARE" drop.gpu drop.cpu 1e-5 1e-7'
    check "who is asked for another device than the plan's says so" 'grep -q "the plan is for device '"'core'"'.*it runs on device cudaemu" said'
}

# The ways in which ranks share a model: a name, and its rules.
ways() {
    cat <<'END'
dp|mesh dp = 2; devices = [0, 1]; microbatches = 2
sequence|mesh dp = 2, tp = 2; split heads, ffn, vocab by tp; split seq by tp
gpipe|mesh pp = 2, dp = 2; stage before h[1]; microbatches = 2; schedule = "gpipe"
1f1b|mesh pp = 2, tp = 2; stage before h[1]; microbatches = 4; split heads, ffn, vocab by tp
context|mesh cp = 2, dp = 2; split seq by cp
zero|mesh dp = 4; shard optimizer by dp; recompute h full
server|mesh dp = 4; sync = "server"
END
}

# launches PLAN: of messages, of all ranks of a run.
launches() { CUDAEMU_TRACE=1 "$PRUN" "$1" --device cudaemu --data t.txt --steps $steps --ranks threads 2>&1 | grep -c "a transfer of NCCL"; }

many_ranks() {
    local name rules seed=0
    train cpu gpt2.plan one || return 1
    while IFS='|' read -r name rules; do
        seed=$((seed + 1))
        plan $name.plan gpt2 "layers=2 drop=0.1" "$rules"
        check "$name: threads, with the streams in another order" 'CUDAEMU_SEED=$seed train cudaemu $name.plan $name.t --ranks threads && agree $name.t one 1e-5'
        check "$name: processes come to the same bits" 'train cudaemu $name.plan $name.p && cmp <(figures $name.t) <(figures $name.p)'
    done < <(ways)
    check "1f1b: a step of four micro-batches has eight messages of a rank in five launches" '[ $(($(steps=2 launches 1f1b.plan) - $(steps=1 launches 1f1b.plan))) = $((4 * 5)) ]'
    plan two.plan gpt2 "layers=2" "mesh pp = 2; stage before h[1].attn.q; devices = [0, 1]; microbatches = 1"
    check "two values of a boundary and their gradients have two launches, or one" '[ $(($(steps=2 launches two.plan) - $(steps=1 launches two.plan))) = $((2 + 1)) ]'
}

checkpoints() {
    train cpu gpt2.plan whole || return 1
    steps=2 train cudaemu zero.plan first --save a && train cpu 1f1b.plan second --resume a || return 1
    check "the cpu goes on from a GPU's checkpoint, under another plan" 'cat first second >both && agree both whole 1e-5'
    steps=2 train cpu zero.plan first --save b && train cudaemu 1f1b.plan second --resume b || return 1
    check "a GPU goes on from the cpu's" 'cat first second >both && agree both whole 1e-5'
}

# A model that minimizes nothing, in batches of which the last is short.
forward() {
    cat >fwd.pmodel <<'END'
model fwd {
  dim batch = 4, pixel = 6, hidden = 8, class = 3
  precision { compute = f32 }
  input image[batch, pixel] : f32
  logits = fc2: linear(relu(fc1: linear(image, hidden)), class)
  output logits
}
END
    "$RELEASE/pplan" plan fwd.pmodel -c machine.pcluster:cores --with 'mesh dp = 2; devices = [0, 1]; microbatches = 2' -o fwd.plan >said 2>&1 &&
        "$PRUN" fwd.plan --data random --steps 2 --dump fc2@2=f.cpu 2>said && "$PRUN" fwd.plan --device cudaemu --data random --steps 2 --dump fc2@2=f.gpu 2>said || { cat said; return 1; }
    check "a model without a loss runs forward" '"$COMPARE" f.gpu f.cpu 1e-5 1e-7'
}

# A model of two losses, of which the stages have one each.
several_losses() {
    cat >two.pmodel <<'END'
model two {
  dim batch = 4, pixel = 6, hidden = 8, class = 3
  precision { compute = f32 }
  optimizer sgd { lr = 0.1 }
  input image[batch, pixel] : f32
  input label[batch] : i32
  x = low: linear(image, hidden)
  early = cross_entropy(first: linear(x, class), label)
  late = cross_entropy(second: linear(relu(high: linear(x, hidden)), class), label)
  minimize early + 0.5 * late
}
END
    "$RELEASE/pplan" plan two.pmodel -c machine.pcluster:cores --with 'mesh pp = 2, dp = 2; stage before high; microbatches = 2' -o two.plan >said 2>&1 || { cat said; return 1; }
    for d in cpu cudaemu; do
        "$PRUN" two.plan --device $d --data random --eval random --steps 3 --log two.$d 2>said || { cat said; return 1; }
        for key in '"early"' '"late"'; do grep -oE "$key: [^,}]*" two.$d; done >two.$d.losses
    done
    check "each of several losses is the cpu's, in steps and an evaluation" 'paste two.cudaemu.losses two.cpu.losses | awk "{ d = \$2 / \$4 - 1; if (!(d < 1e-5 && d > -1e-5)) exit 1 } END { exit NR != 8 }"'
}

devices() {
    plan gpu.plan gpt2 "layers=1" "mesh dp = 2; devices = [0, 1]" gpus
    train cpu gpu.plan cpu || return 1
    check "a plan for GPUs runs on the cpu, which is said" 'grep -q "the plan is for device '"'gpu'"'" said'
    check "and on GPUs" 'train cudaemu gpu.plan gpu && agree gpu cpu 1e-5'
    check "without a plug-in for them '--device auto' takes the cpu" 'train auto gpu.plan auto && cmp <(figures auto) <(figures cpu) && grep -q "no GPU to be had (this prun came without libprun_cuda.so)" said'
    check "and '--device cuda' is refused" 'refused 3 "error: --device cuda: this prun came without libprun_cuda.so" "$PRUN" gpu.plan --device cuda --data t.txt && [ "$(wc -l <said)" = 1 ]'
    check "--version names what there is" '"$PRUN" --version | grep -q "^cudaemu: CUDA [0-9.]*, cuBLASLt [0-9]*, NCCL "'
    plan f64.plan gpt2 "layers=1 dtype=f64" "devices = [0]"
    check "f64 is refused by name" 'refused 1 "the cudaemu backend cannot run op '"'embed'"' on f64: it computes in f32 and bf16" "$PRUN" f64.plan --device cudaemu --data t.txt'
    plan grid.plan gpt2 "batch=65536 seq=2 vocab=8 hidden=4 heads=1 ffn=4 layers=1" "devices = [0]; microbatches = 1"
    check "so are more sequences than a grid has room for" 'refused 1 "the cudaemu backend cannot run op '"'attention'"' on f32 of these sizes" "$PRUN" grid.plan --device cudaemu --data random'
}

all() { one_rank && many_ranks && checkpoints && forward && several_losses && devices || echo "not ok a run of these tests failed"; }
make_text t.txt $((24 * 16 + 1))
make_text e.txt 200 3
on_gpus all
