# gpu.bash -- helpers of the tests of plans on GPUs; a script sources it after lib.bash and ranks.bash.  What runs is prun with
# the plug-in of the emulator, from the sources of the plug-in for GPUs.
export PRUN_PLUGINS=$TOP/build/emu

# on_gpus FUNCTION: the tests of a script, where the emulator is built.
on_gpus() {
    if [ -f "$PRUN_PLUGINS/libprun_cudaemu.so" ]; then "$1"; else echo "skip plans on the emulator of GPUs: $(cut -c 9- "$TOP/build/emu/absent")"; fi
}

cat >machine.pcluster <<'END'
device core { backend = cpu, threads = 1, memory = 2 GiB, reserve = 256 MiB, bandwidth = 12 GB/s
  peak.f32 = 100 GFLOP/s, peak.f64 = 50 GFLOP/s, peak.bf16 = 100 GFLOP/s
  efficiency = [[0, 0.5]], launch = 1 us }
device gpu { backend = cuda, memory = 2 GiB, reserve = 256 MiB, bandwidth = 1 TB/s
  peak.f32 = 10 TFLOP/s, peak.bf16 = 100 TFLOP/s, efficiency = [[0, 0.5]], launch = 5 us }
cluster cores { level socket = 4 * core { link = 6 GB/s, latency = 3 us, topology = full, cores = 2 } }
cluster gpus { level node = 4 * gpu { link = 100 GB/s, latency = 5 us, topology = full } }
END

# values KEY FILE: of its lines of steps, without those of evaluations.
values() { grep grad_norm "$2" | sed -nE 's/.*'"$1"': ([^,}]*).*/\1/p'; }

# plan OUT MODEL DEFINES RULES [CLUSTER]
plan() {
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_$2.pmodel" -c "machine.pcluster:${5:-cores}" $(printf -- '-D %s ' $3) --with "$4" -o "$1" >said 2>&1 || { cat said; exit 2; }
}

# train DEVICE PLAN LOG OPTION...: $steps steps.
steps=3
train() {
    "$PRUN" "$2" --device "$1" --data t.txt --steps $steps --log "$3" "${@:4}" 2>said || { cat said; return 1; }
}

# agree FILE FILE TOLERANCE: losses and norms of $steps steps, relative.
agree() {
    local key
    for key in '"loss"' '"grad_norm"'; do
        paste <(values $key "$1") <(values $key "$2") | awk -v t="$3" -v n=$steps '{ d = $1 / $2 - 1; if (!(d <= t && d >= -t)) { print; bad = 1 } n-- } END { exit bad || n }' || return 1
    done
}
