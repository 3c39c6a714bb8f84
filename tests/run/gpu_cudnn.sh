# Attention by cuDNN on the emulator, which has one when it is asked for: which cases of the op and its gradient are left to it, each
# held against the plain form; what is said of the others; a run of prun with it; a cuDNN that is too old, does not start, has no
# plan, or fails.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"

# cases WORDS: what test_ops makes of the cases of these names, in bf16.
cases() { "$TOP/build/emu/test_ops" "bf16, larger" "$1" >said 2>&1; }

# Who executes each case: a line each, the op or its gradient.
who() {
    cat <<'END2'
# attention, attention: cuDNN
# attention, attention_grad: cuDNN
# attention, bare, attention: cuDNN
# attention, bare, attention_grad: cuDNN
# attention, causal, attention: cuDNN
# attention, causal, attention_grad: cuDNN
# attention, window, attention: a window
# attention, window, attention_grad: a window
# attention, grouped, attention: cuDNN
# attention, grouped, attention_grad: cuDNN
# attention, cross, attention: cuDNN
# attention, cross, attention_grad: cuDNN
# attention, mask, attention: a mask
# attention, mask, attention_grad: a mask
# attention, bias, attention: a bias
# attention, bias, attention_grad: a bias
# attention, documents, attention: documents
# attention, documents, attention_grad: documents
# attention, dropout, attention: dropout
# attention, dropout, attention_grad: dropout
# attention, wide, attention: a window
# attention, wide, attention_grad: a window
# attention, widest, attention: dropout
# attention, widest, attention_grad: dropout
# attention, all, attention: dropout
# attention, all, attention_grad: dropout
END2
}

# left NAME WHY: what cuDNN would execute is left to our kernels, for that reason, and is right.
left() {
    check "$1: our own kernels are taken, and are right" 'cases "attention, causal" && [ "$(grep -cxF -e "# attention, causal, attention: '"$2"'" -e "# attention, causal, attention_grad: '"$2"'" said)" = 2 ] || { cat said; false; }'
}

ops() {
    export CUDAEMU_CUDNN=91900
    check "attention and its gradient are those of the plain form" 'cases attention || { cat said; false; }'
    check "cuDNN executes the cases that it can, and why not the others is said" 'diff <(who) <(grep "^# " said)'
    CUDAEMU_CUDNN=91500 left "a cuDNN that is too old" "libcudnn.so.9 is of cuDNN 9.15, and 9.16 is needed"
    CUDAEMU_CUDNN=0 left "no cuDNN" "the emulator has none"
    CUDAEMU_FAIL=cudnnCreate:1=1001 left "a cuDNN that does not start" "cuDNN does not start on this device"
    CUDAEMU_FAIL=cudnnBackendFinalize:30=3000,cudnnBackendFinalize:60=3000 left "a cuDNN without plans" "a fault that was asked for"
}

runs() {
    export CUDAEMU_CUDNN=91900
    plan plain.plan llama "layers=2 dtype=bf16" "devices = [0]" && plan drop.plan gpt2 "layers=2 dtype=bf16 drop=0.1" "devices = [0]" && train cpu plain.plan cpu || return 1
    check "a run in bf16 is within 1e-2 of the cpu's" 'train cudaemu plain.plan gpu && agree gpu cpu 1e-2'
    check "nothing is said of kernels" '! grep "own kernels" said'
    check "the same run comes to the same bits" 'train cudaemu plain.plan again && cmp <(figures gpu) <(figures again)'
    check "without cuDNN that is said, once" 'CUDAEMU_CUDNN=0 train cudaemu plain.plan own && [ "$(grep -c "^note: attention by prun'"'"'s own kernels instead of cuDNN'"'"'s: the emulator has none$" said)" = 1 ]'
    check "and other bits come of it, as near" '! cmp -s <(figures gpu) <(figures own) && agree own cpu 1e-2'
    plan two.plan llama "layers=2 dtype=bf16" "mesh dp = 2; devices = [0, 1]; microbatches = 2"
    check "each of two ranks has plans for its own device" 'train cudaemu two.plan two --ranks threads && agree two cpu 1e-2 && ! grep "own kernels" said'
    check "--version names cuDNN" '"$PRUN" --version | grep -q "^cudaemu: .*, cuDNN 9.19.0" && CUDAEMU_CUDNN=0 "$PRUN" --version | grep -q "^cudaemu: .*, no cuDNN"'
    check "a call that fails ends the run" 'CUDAEMU_FAIL=cudnnBackendExecute:3=5000 refused 3 "cuDNN: a fault that was asked for, at instruction" "$PRUN" plain.plan --device cudaemu --data t.txt --steps 2'
}

all() { ops && runs || echo "not ok a run of these tests failed"; }
make_text t.txt $((24 * 16 + 1))
on_gpus all
