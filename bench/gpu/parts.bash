# parts.bash -- how parts of bench/gpu.sh run, and those that say whether plans run right.

# ---- running a part ----

# say TEXT...: as part of a part.
say() { printf '  %s\n' "$@"; }

# In seconds, for the part that runs.
left() { echo $((part_end > SECONDS ? part_end - SECONDS : 1)); }

# limited COMMAND...: as long as the part has; what it says is for `because`.
limited() {
    local seconds status
    seconds=$(left)
    timeout -k 5 "$seconds" "$@" 2>"$dir/said"
    status=$?
    [ $status != 124 ] || echo "stopped after $seconds s" >>"$dir/said"
    return $status
}

# because WHAT: why the last command failed.
because() {
    why="$1: $(grep -v '^$' "$dir/said" | tail -n 1)"
    return 1
}

# run_part NAME SECONDS: the function of this name puts its figures into NAME.jsonl, and into `why` what its verdict says.
run_part() {
    local begin=$SECONDS verdict=ok
    part_end=$((SECONDS + $2)) why='' figures=$dir/$1.jsonl
    printf '\n%s\n' "$1"
    : >"$figures"
    "part_$1" || verdict=FAILED failed=1
    printf '%s: %s%s (%d s)\n' "$1" $verdict "${why:+: $why}" $((SECONDS - begin))
    verdicts+="$1|$verdict|$why|$((SECONDS - begin))"$'\n'
}

# json KEY FILE: its values, a line each; none where there is no file.
json() { sed -nE 's/.*"'"$1"'": *"?([^,}"]*).*/\1/p' "$2" 2>/dev/null; }

# checked FILE NAME: counts lines 'ok' and 'not ok' of a program; what is wrong is shown.
checked() {
    local good bad
    good=$(grep -c '^ok ' "$1") bad=$(grep -c '^not ok ' "$1")
    grep -v '^ok ' "$1" | head -n 20 | sed 's/^/  /'
    printf '{"program": "%s", "ok": %d, "wrong": %d}\n' "$2" "$good" "$bad" >>"$figures"
    why="$good checks hold"
    [ "$bad" = 0 ] || why+=", $bad do not"
    [ "$bad" = 0 ] && [ "$good" -gt 0 ]
}

# ---- machine ----

# version LIBRARY SYMBOL: a number that a function of a shared library gives.
version() { python3 -c "import ctypes; print(ctypes.CDLL('$1').$2())" 2>/dev/null || echo "not found"; }

# ask_gpu WHAT[,WHAT]: of nvidia-smi.
ask_gpu() { nvidia-smi -i 0 --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

# cuDNN and NCCL of Python's packages for programs that find none: the loader has the system's, if there are.
use_packaged() {
    local name folder
    for name in cudnn nccl; do
        ! ldconfig -p 2>/dev/null | grep -q "lib$name\.so\." || continue
        folder=$("${BENCH_PYTHON:-python3}" -c "import sys, glob; print(*[d for p in sys.path for d in glob.glob(p + '/nvidia/$name/lib')], sep=':')" 2>/dev/null)
        [ -z "$folder" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
}

# Code for this GPU alone.
build() {
    [ $emulator ] || [ -n "${BENCH_BUILT:-}" ] || limited make -s -j"$(nproc)" WITH_CUDA=yes CUDA_ARCHS="$(ask_gpu compute_cap | tr -d .)" gpu-bench-programs >"$dir/build" || { tail -n 20 "$dir/said"; return 1; }
}

part_machine() {
    local p about
    [ -n "$gpu" ] || { why="nvidia-smi finds no GPU"; return 1; }
    [ $emulator ] || say "$gpu; driver, memory, fastest clock: $(ask_gpu driver_version,memory.total,clocks.max.sm)" "cuDNN $(version libcudnn.so.9 cudnnGetVersion)"
    build || because "make" || return
    for p in "$bin/pplan" "$bin/prun" "$programs/test_ops" "$programs/gpu_one_rank" "$programs/gpu_kernels"; do
        [ -x "$p" ] || { why="$p is not built"; return 1; }
    done
    about=$($bin/prun --version | grep "^$device:")
    say "$about"
    printf '{"gpu": "%s", "about": "%s", "date": "%s"}\n' "$gpu" "$about" "$(date -u +%F)" >>"$figures"
    case $about in
    '') why="prun has no plug-in for $device"; return 1 ;;
    *"not available"*) why="prun finds no GPU"; return 1 ;;
    esac
}

# ---- ops, nccl ----

# check_program NAME ARGUMENT...: one that says 'ok' or 'not ok' of all that it checks.
check_program() {
    local status
    limited "$programs/$1" "${@:2}" >"$dir/$1.out"
    status=$?
    [ -s "$dir/said" ] || tail -n 1 "$dir/$1.out" >"$dir/said"
    checked "$dir/$1.out" "$1" && [ $status = 0 ] && return
    grep -q '^not ok' "$dir/$1.out" || because "$1 ends with status $status"
    return 1
}

# On the emulator one round of them: all are among its own tests.
part_ops() { check_program test_ops ${emulator:+"f32, small"}; }

part_nccl() { check_program gpu_one_rank; }

# ---- losses ----

# The demo's model, on English that is at hand; one plan for both devices.
demo_steps=50 demo=()
[ ! $emulator ] || demo_steps=20 demo=(-D layers=1 -D hidden=32 -D heads=2 -D seq=16 -D batch=4)

# train DEVICE DTYPE: losses go to the log.
train() {
    limited $bin/prun "$dir/demo.$2.plan" --device "$1" --data "$dir/demo.txt" --steps $demo_steps --log "$dir/demo.$2.$1.log" || because "prun --device $1 ($2)"
}

# apart LOG LOG: the largest relative difference of losses; 'nan' unless both have all steps.
apart() {
    paste <(json loss "$1") <(json loss "$2") | awk -v n=$demo_steps '
        { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= most)) most = d }
        END { print NF == 2 && NR == n ? most + 0 : "nan" }'
}

# compared WHAT LOG LOG LIMIT: a figure; $d is how far they are apart.
compared() {
    d=$(apart "$2" "$3")
    say "$(printf '%-26s %s, wanted: at most %s' "$1" "$d" "$4")"
    printf '{"losses": "%s", "apart": "%s", "limit": %s}\n' "$1" "$d" "$4" >>"$figures"
}

# close_enough WHAT LOG LOG LIMIT: they must be.
close_enough() {
    local d
    compared "$@"
    awk -v d="$d" -v limit="$4" 'BEGIN { exit !(d != "nan" && d <= limit) }' && return
    why="$1: $d apart"
    return 1
}

part_losses() {
    local t d bad=0
    cat docs/*.md >"$dir/demo.txt"
    for t in f32 bf16; do
        $bin/pplan plan models/tiny/char_gpt.pmodel -c dgx_h100 --with 'devices = [0]' "${demo[@]}" -D dtype=$t -o "$dir/demo.$t.plan" >/dev/null 2>"$dir/said" || because pplan || return
        train cpu $t && train $device $t || return
    done
    say "$demo_steps losses of the demo's model, largest relative difference"
    close_enough "f32, from the cpu's" "$dir/demo.f32.$device.log" "$dir/demo.f32.cpu.log" 1e-4 || bad=1
    close_enough "bf16, from the cpu's" "$dir/demo.bf16.$device.log" "$dir/demo.bf16.cpu.log" 1e-2 || bad=1
    compared "bf16, from f32 of the cpu" "$dir/demo.bf16.$device.log" "$dir/demo.f32.cpu.log" 1e-2
    return $bad
}
