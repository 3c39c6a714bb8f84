# speed.bash -- parts of bench/gpu.sh that measure, and the summary.

# NAME MODEL FAMILY BATCH SIZES: FAMILY is peer_models.py's, and SIZES are what both it and the model are given.
shapes() {
    if [ $emulator ]; then
        cat <<'END'
gpt2 gpt2 gpt2 2 layers=1 hidden=32 heads=2 vocab=64 seq=16
gpt2_xl gpt2 gpt2 2 layers=2 hidden=48 heads=3 vocab=64 seq=16
llama_1b llama3_1b llama 2 layers=1 hidden=32 heads=4 kv_heads=2 ffn=64 vocab=64 seq=16
END
    else
        cat <<'END'
gpt2 gpt2 gpt2 16 layers=12 hidden=768 heads=12 vocab=50257 seq=1024
gpt2_xl gpt2 gpt2 8 layers=48 hidden=1600 heads=25 vocab=50257 seq=1024
llama_1b llama3_1b llama 8 layers=16 hidden=2048 heads=32 kv_heads=8 ffn=8192 vocab=128256 seq=2048
END
    fi
}
warmup=3 timed=10 shown=15            # steps; kinds of kernels
[ ! $emulator ] || timed=3 shown=3

# batch_of NAME BATCH: unless another one was asked for.
batch_of() {
    local given=" ${BENCH_BATCH:-} "
    [[ $given != *" $1="* ]] || set -- "$1" "${given#*" $1="}"
    echo "${2%% *}"
}

# for_shapes FUNCTION: with $name, $model, $family, $batch and the array $sizes; says at the end which of them failed.
for_shapes() {
    local name model family batch sizes bad='' end=$part_end n
    n=$(shapes | wc -l)
    while read -r name model family batch sizes; do
        batch=$(batch_of "$name" "$batch")
        sizes=($sizes)
        part_end=$((SECONDS + (end - SECONDS) / n))
        n=$((n - 1))
        "$1" </dev/null || bad+="${bad:+; }$name: $why"
        why=
    done < <(shapes)
    why=$bad
    [ -z "$bad" ]
}

# The bundled cluster that has the GPU of this machine.
cluster() {
    [ -z "${BENCH_CLUSTER:-}" ] || { echo "$BENCH_CLUSTER"; return; }
    case $gpu in
    *H200* | emulator) echo dgx_h200 ;;
    *H100*) echo dgx_h100 ;;
    *A100*40GB*) echo dgx_a100_40gb ;;
    *A100*) echo dgx_a100 ;;
    *B200*) echo dgx_b200 ;;
    *4090*) echo rtx4090_x8 ;;
    *) return 1 ;;
    esac
}

# make_plan: $dir/$name.plan, and what is predicted of it in $dir/$name.json.
make_plan() {
    local c
    c=$(cluster) || { why="no bundled cluster has '$gpu': name one, BENCH_CLUSTER=FILE"; return 1; }
    local options=("models/$model.pmodel" -c "$c" -D batch="$batch" "${sizes[@]/#/-D}")
    # 50257 logits of bf16 leave rows unaligned; PyTorch's are padded alike.
    [ "$family" = gpt2 ] && options+=(-D drop=0.0 --with 'devices = [0]; pad vocab to 128') || options+=(--with 'devices = [0]')
    limited $bin/pplan plan "${options[@]}" -o "$dir/$name.plan" >/dev/null && limited $bin/pplan estimate "${options[@]}" --json >"$dir/$name.json" || because pplan
}

# MiB of the GPU's memory, the most that was used since; ends with whoever started it.
watch_memory() {
    local most=0 now
    while sleep 0.3; do
        now=$(ask_gpu memory.used) || return
        now=${now% MiB}
        [ "$now" -le $most ] || { most=$now; echo $most >"$1"; }
    done
}

# median KEY FILE: over the steps that are timed.
median() { json "$1" "$2" | tail -n +$((warmup + 1)) | sort -g | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'; }

# A run that its time ends is one of fewer steps.
step_time() {
    local log=$dir/$name.log seconds watcher='' status
    rm -f "$dir/$name.step" "$log"
    make_plan || return
    echo - >"$dir/memory"
    [ $emulator ] || { watch_memory "$dir/memory" & watcher=$!; }
    limited $bin/prun "$dir/$name.plan" --device $device --data random --steps $((warmup + timed)) --log "$log"
    status=$?
    [ ! $watcher ] || kill $watcher
    seconds=$(median seconds "$log")
    { [ $status = 0 ] || [ $status = 124 ] || [ $status = 137 ]; } && [ -n "$seconds" ] || because "prun" || return
    awk -v name="$name" -v s="$seconds" -v predicted="$(json step_ns "$dir/$name.json")" -v tokens="$(json tokens "$dir/$name.json" | head -n 1)" \
        -v mfu="$(median mfu "$log")" -v map="$(json map_bytes "$dir/$name.json")" -v used="$(cat "$dir/memory")" -v loss="$(json loss "$log" | tail -n 1)" '
        BEGIN { printf "{\"shape\": \"%s\", \"seconds\": %.6g, \"tokens_per_s\": %.6g, \"mfu\": %.4f, \"predicted_seconds\": %.6g, \"map_bytes\": %s, \"used_mib\": \"%s\", \"loss\": %s}\n",
            name, s, tokens / s, mfu, predicted * 1e-9, map, used, loss }' | tee -a "$figures" >"$dir/$name.step"
    say "$(printf '%-9s batch %3d  %8.1f ms  %9.0f tokens/s  mfu %5.1f %%  predicted %8.1f ms  map %6.2f GB  used %s MiB' "$name" "$batch" \
        "$(scaled seconds 1e3)" "$(scaled tokens_per_s 1)" "$(scaled mfu 100)" "$(scaled predicted_seconds 1e3)" "$(scaled map_bytes 1e-9)" "$(cat "$dir/memory")")"
}

# scaled KEY FACTOR: of the step of $name.
scaled() { awk -v x="$(json "$1" "$dir/$name.step")" -v by="$2" 'BEGIN { print x * by }'; }

part_steps() { for_shapes step_time; }

# ---- graphs ----

# The first five steps of a run replay no graphs, nor does one in eight of those after them.
issued=5

# timed_run LOG OPTION...: the median of steps that may replay, in $seconds.
timed_run() {
    rm -f "$1"
    limited $bin/prun "$dir/$name.plan" --device $device --data random --steps $((issued + timed)) --log "$1" "${@:2}" || because "prun${2:+ $2}" || return
    seconds=$(warmup=$issued median seconds "$1")
}

# graphs_of BATCH: the same steps with graphs and without, which come to the same losses.
graphs_of() {
    local name=$name.graphs batch=$1 seconds plain n ratio
    local logs=("$dir/$name.off.log" "$dir/$name.on.log")
    make_plan && timed_run "${logs[0]}" && plain=$seconds && timed_run "${logs[1]}" --graphs || return
    n=$(sed -nE 's/^memory: .*; ([0-9]+) graphs, .*/\1/p' "$dir/said")
    [ "${n:-0}" -gt 0 ] || { why="prun --graphs made no graphs"; return 1; }
    cmp -s <(json loss "${logs[0]}") <(json loss "${logs[1]}") || { why="batch $batch: losses with graphs are not those without"; return 1; }
    ratio=$(awk -v off="$plain" -v on="$seconds" 'BEGIN { printf "%.3f", off / on }')
    printf '{"shape": "%s", "batch": %d, "graphs": %d, "seconds": %s, "seconds_with_graphs": %s, "ratio": %s}\n' "${name%.*}" "$batch" "$n" "$plain" "$seconds" "$ratio" >>"$figures"
    said+="${said:+, }$ratio times as fast with a batch of $batch"
}

# GPT-2 124M: a batch of one has the shortest kernels, and so the most to gain; that of `steps` is what one trains with.
part_graphs() {
    local name model family batch sizes said=''
    read -r name model family batch sizes < <(shapes)
    sizes=($sizes)
    graphs_of 1 && graphs_of "$(batch_of "$name" "$batch")" && why=$said
}

# ---- kernels ----

kernel_times() {
    make_plan || return
    limited "$programs/gpu_kernels" "$dir/$name.plan" >"$dir/$name.kernels" || because kernels || return
    sed 's/^{/{"shape": "'"$name"'", /' "$dir/$name.kernels" >>"$figures"
    say "" "$name: kernels of a step take $(json seconds "$dir/$name.kernels" | tail -n 1 | awk '{ printf "%.2f", 1e3 * $1 }') ms together; the largest shares" \
        "$(printf '%6s %5s %9s %9s %10s %7s  %s' share times 'us each' predicted reached peak call)"
    head -n -1 "$dir/$name.kernels" | head -n $shown | while IFS= read -r line; do
        awk -v share="$(json share /dev/stdin <<<"$line")" -v times="$(json times /dev/stdin <<<"$line")" -v s="$(json seconds /dev/stdin <<<"$line")" \
            -v predicted="$(json predicted /dev/stdin <<<"$line")" -v flops="$(json tflops /dev/stdin <<<"$line")" -v bytes="$(json gbytes /dev/stdin <<<"$line")" \
            -v peak="$(json of_peak /dev/stdin <<<"$line")" -v call="$(sed -nE 's/.*"call": "([^"]*)".*/\1/p' <<<"$line")" '
            BEGIN { printf "  %4.1f %% %5d %9.1f %9.1f %5.0f %s %5.1f %%  %s\n", 100 * share, times, 1e6 * s, 1e6 * predicted,
                flops == "" ? bytes : flops, flops == "" ? "GB/s" : "TF/s", 100 * peak, call }'
    done
}

part_kernels() { for_shapes kernel_times; }

# ---- torch ----

# A Python whose PyTorch has a GPU; on the emulator any PyTorch will do.
find_torch() {
    local p
    for p in ${BENCH_PYTHON:-build/venv/bin/python python3}; do
        command -v "$p" >/dev/null && "$p" -c "import sys, torch; sys.exit(not (torch.cuda.is_available() or '$emulator'))" 2>/dev/null && { python=$p; return; }
    done
    return 1
}

# On the emulator PyTorch takes the cpu, not compiled, which is a minute's work.
torch_time() {
    local how=(--device cuda --mode compile --compile parts) out=$dir/$name.torch ratio
    [ ! $emulator ] || how=(--device cpu --mode eager)
    limited env TORCHINDUCTOR_CACHE_DIR="$(realpath "$dir")/inductor" "$python" bench/peer_torch.py --model "$family" --shape "${sizes[*]}" --dtype autocast --batch "$batch" \
        --seq "$(tr ' ' '\n' <<<"${sizes[*]}" | sed -n 's/^seq=//p')" --warmup $warmup --steps $timed "${how[@]}" >"$out" || because "PyTorch" || return
    ratio=$(awk -v theirs="$(json median_seconds "$out")" -v ours="$(json seconds "$dir/$name.step")" 'BEGIN { if (ours > 0) printf "%.3f", theirs / ours; else print "-" }')
    printf '{"shape": "%s", "ratio": "%s", "peer": %s}\n' "$name" "$ratio" "$(tail -n 1 "$out")" >>"$figures"
    say "$(printf '%-9s PyTorch %s %8.1f ms  %9.0f tokens/s  %s MB; prun is %s times as fast' "$name" "$(json version "$out")" \
        "$(json median_seconds "$out" | awk '{ print 1e3 * $1 }')" "$(json tokens_per_s "$out")" "$(json peak_mb "$out")" "$ratio")"
}

part_torch() {
    find_torch || { why="PyTorch with CUDA is not installed: nothing to compare with"; return 0; }
    for_shapes torch_time
}

# ---- summary ----

# goal TEXT WANTED VALUE CONDITION: CONDITION, of awk, says of `x` whether it is met.
goal() {
    local verdict=missed
    case $3 in
    '' | - | nan) verdict='not measured' ;;
    *) awk -v x="$3" "BEGIN { exit !($4) }" && verdict=met ;;
    esac
    [ ! $emulator ] || verdict='(emulator)'
    printf '  %-58s %8s %11s  %s\n' "$1" "$2" "${3:--}" "$verdict"
}

# figure PART KEY SHAPE: of those that were measured last.
figure() { grep -s "$3" "$dir/$1.jsonl" | json "$2" /dev/stdin; }

# The largest abs(predicted / measured - 1) of the shapes.
worst_prediction() {
    paste <(figure steps seconds shape) <(figure steps predicted_seconds shape) | awk 'NF == 2 { d = $2 / $1 - 1; d = d < 0 ? -d : d; most = d > most ? d : most } END { if (most != "") printf "%.3f", most }'
}

summary() {
    local part verdict text seconds
    printf '\n%-8s %-7s %5s\n' part verdict s
    while IFS='|' read -r part verdict text seconds; do
        [ -z "$part" ] || printf '%-8s %-7s %5s  %s\n' "$part" "$verdict" "$seconds" "$text"
    done <<<"$verdicts"
    printf '\n%-60s %8s %11s\n' goals wanted measured
    goal "losses in bf16, from f32 of the cpu, at most" 0.01 "$(figure losses apart 'f32 of')" 'x <= 0.01'
    goal "MFU of the 1B shape, at least" 0.40 "$(figure steps mfu llama_1b)" 'x >= 0.4'
    goal "speed of compiled PyTorch, the slowest shape, at least" 1.0 "$(figure torch ratio shape | sort -g | head -n 1)" 'x >= 1'
    goal "step times from those predicted, the worst shape, at most" 0.15 "$(worst_prediction)" 'x <= 0.15'
    printf '%d s of %d; figures are in %s\n' $SECONDS $whole "$dir"
}
