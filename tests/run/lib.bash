# lib.bash -- helpers of the tests that run plans; a script sources it and runs in $TMP.
cd "$TMP" || exit 2
MODELS=$TOP/models

# check NAME CONDITION: one test; a failure shows what the last `refused` or `got` saw.
check() { if eval "$2"; then echo "ok $1"; else echo "failed: $2"; echo "not ok $1"; fi; }

# make_plan FILE [OPTION...]: a plan of a very small GPT on bytes, batch 8, 16 tokens a sample.
make_plan() {
    local out=$1
    shift
    "$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop1 -D layers=1 "$@" -o "$out" >/dev/null || exit 2
}

# make_text FILE BYTES [SEED]: letters drawn with a linear congruence.
make_text() {
    awk -v n="$2" -v s="${3:-1}" 'BEGIN { for (i = 0; i < n; i++) { s = (s * 1103515245 + 12345) % 2147483648
        printf "%c", 97 + int(s / 65536) % 26 } }' >"$1"
}

# The figures of a log that must repeat: all but those of time.
figures() { sed -E 's/, "tokens".*//' "$@"; }

# field NAME FILE: its values, a line each.
field() { sed -nE 's/.*"'"$1"'": ([^,}]*).*/\1/p' "$2"; }

# near KEY LIMIT STEPS: the figures of many.log and one.log, relative.
near() {
    paste <(field "$1" many.log) <(field "$1" one.log) |
        awk -v limit="$2" -v n="$3" 'NF != 2 || !(($1 - $2) ^ 2 <= (limit * $2) ^ 2) { print; bad = 1 } END { exit bad || NR != n }'
}

# same CHECKPOINT CHECKPOINT: weights and moments, bit for bit.
same() { cmp "$1/weights.safetensors" "$2/weights.safetensors" && cmp "$1/moments.safetensors" "$2/moments.safetensors"; }

# integers FILE: the numbers of a file with one tensor of i64.
integers() { tail -c +$((9 + $(od -An -t u8 -N8 "$1"))) "$1" | od -An -v -t d8 -w8 | tr -d ' '; }

# wait_until CONDITION: at most a minute, which is for machines under load and for what never happens.
wait_until() {
    local end=$((SECONDS + 60))
    until eval "$1"; do
        [ $SECONDS -lt $end ] || { echo "a minute passed before: $1"; return 1; }
        sleep 0.05
    done
}

# refused STATUS TEXT COMMAND...: it must exit so and say so.
refused() {
    local status=$1 text=$2
    shift 2
    "$@" >said 2>&1
    local got=$?
    [ "$got" -eq "$status" ] && grep -qF -- "$text" said && return 0
    echo "exit $got instead of $status, or not '$text':"
    cat said
    return 1
}

# make_small FILE: a plan of a perceptron with few tensors, for tests of every call of a save.
make_small() { "$RELEASE/pplan" plan "$MODELS/mlp.pmodel" -c laptop1 -D batch=4 -D pixel=8 -D hidden=8 -D class=4 -D dtype=f32 -o "$1" >/dev/null || exit 2; }

# on_devices FUNCTION...: tests of plans in f32, on the cpu and again on the emulator of GPUs: $on is for prun's command line, $device for names.
on_devices() {
    local device=cpu on=
    "$@"
    if [ -f "$TOP/build/emu/libprun_cudaemu.so" ]; then
        device=cudaemu on="--device cudaemu"
        PRUN_PLUGINS=$TOP/build/emu "$@"
    else
        echo "skip plans on the emulator of GPUs: $(cut -c 9- "$TOP/build/emu/absent")"
    fi
}
