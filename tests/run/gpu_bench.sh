# bench/gpu.sh on the emulator of GPUs, so that it is right when it gets to see a GPU: every part comes to its end, with tiny models; one
# that fails is said and the others go on; losses that differ are seen.
. "$TESTS/run/lib.bash"
. "$TESTS/run/gpu.bash"

# bench PART...: with a stand-in for PyTorch, which takes longer to load than all of this.
bench() {
    BENCH_PYTHON=$TMP/python BENCH_DIR=$TMP/out "$TOP/bench/gpu.sh" --emulator "$@" >said 2>&1
    status=$?
}

cat >python <<'END'
#!/bin/bash
[ "$1" != -c ] || exit 0
printf '%s\n' "$*" >>"${0%/*}/asked"
echo '{"step": 0, "seconds": 2.0, "cpu_seconds": 2.0, "loss": 4.0}'
echo '{"peer": "torch", "version": "9.9", "median_seconds": 2.0, "tokens_per_s": 16.0, "peak_mb": 1.5}'
END
chmod +x python

# has_figures PART COUNT: lines of JSON, so many or more.
has_figures() { [ "$(grep -c '^{.*}$' "out/$1.jsonl")" -ge "$2" ] && [ "$(grep -vc '^{.*}$' "out/$1.jsonl")" = 0 ]; }

every_part() {
    local row part count
    bench
    check "bench/gpu.sh comes to its end" '[ $status = 0 ] || { cat said; false; }'
    for row in machine:1 ops:1 nccl:1 losses:2 steps:3 graphs:2 kernels:30 torch:3; do
        part=${row%:*} count=${row#*:}
        check "$part: a verdict and figures" 'grep -q "^$part: ok" said && has_figures $part $count || { cat said "out/$part.jsonl"; false; }'
    done
    check "each goal is in the table" '[ "$(grep -c "(emulator)$" said)" = 4 ] || { cat said; false; }'
    check "PyTorch is given the same sizes" 'grep -q -- "--model llama --shape layers=1 hidden=32 heads=4 kv_heads=2 ffn=64 vocab=64 seq=16 .*--batch 2 --seq 16 " asked'
    check "shares of kernels add up to a step" 'field share out/kernels.jsonl | awk "{ s += \$1 } END { exit !(s > 2.999 && s < 3.001) }"'
}

# Without a plug-in prun runs no plan; kernels and collectives need none.
some_fail() {
    PRUN_PLUGINS=$TMP bench machine nccl losses steps
    check "parts that fail are said, by what went wrong" '[ $status = 1 ] && grep -q "^machine: FAILED: prun has no plug-in for cudaemu" said && grep -q "^losses: FAILED: prun --device cudaemu (f32): error: --device" said && grep -q "^steps: FAILED: gpt2: prun: error: --device" said || { cat said; false; }'
    check "so is a program that is not there" '(emulator=1 dir=out programs=nowhere figures=figures SECONDS=0 part_end=9; . "$TOP/bench/gpu/parts.bash"; ! part_nccl && [[ $why == "gpu_one_rank ends with status 127: "*"No such file"* ]])'
    check "the others go on" 'grep -q "^nccl: ok: 14 checks hold" said && grep -q "^nccl     ok" said'
    BENCH_PYTHON=none BENCH_DIR=$TMP/out "$TOP/bench/gpu.sh" --emulator torch >said 2>&1
    status=$?
    check "no PyTorch is no failure" '[ $status = 0 ] && grep -q "^torch: ok: PyTorch with CUDA is not installed" said'
    bench speed
    check "a part that there is not is refused" '[ $status = 2 ] && grep -q "no part .speed.; there are: machine ops" said'
}

# A loader that finds what is named, and a Python whose packages have all.
packages() {
    . "$TOP/bench/gpu/parts.bash"
    ldconfig() { printf '\t%s (libc6,x86-64) => /usr/lib/%s\n' "$found" "$found"; }
    printf '#!/bin/bash\nname=${2##*/nvidia/}\necho "/site/${name%%%%/*}"\n' >packages
    chmod +x packages
    check "cuDNN is that of Python's packages where the loader finds none" '(found=libnccl.so.2 BENCH_PYTHON=./packages LD_LIBRARY_PATH=/own; use_packaged; [ "$LD_LIBRARY_PATH" = /own:/site/cudnn ])'
    check "and the system's where it does" '(found="libcudnn.so.9 libnccl.so.2" BENCH_PYTHON=./packages LD_LIBRARY_PATH=; use_packaged; [ -z "$LD_LIBRARY_PATH" ])'
}

# Logs of two steps, of which one loss is 2e-4 off.
losses_differ() {
    emulator=1 dir=. figures=figures
    . "$TOP/bench/gpu/parts.bash"
    demo_steps=2
    printf '{"step": 1, "loss": 4.0, "grad_norm": 1}\n{"step": 2, "loss": 2.0, "grad_norm": 1}\n' >a.log
    sed 's/2\.0/2.0004/' a.log >b.log
    head -n 1 a.log >short.log
    check "losses that differ are seen" 'close_enough same a.log a.log 1e-4 >/dev/null && close_enough far a.log b.log 3e-4 >/dev/null && ! close_enough far a.log b.log 1e-4 >/dev/null'
    check "so are losses that are missing" '! close_enough short a.log short.log 1e-2 >/dev/null && ! close_enough none a.log /dev/null 1e-2 >/dev/null'
    printf 'ok one\nnot ok two\n' >program
    check "so is what a program says" '! checked program x >/dev/null && ! checked /dev/null x >/dev/null'
}

all() {
    every_part
    some_fail
    losses_differ
    packages
}
on_gpus all
