# What devices of the emulator must have is what is planned: I01 the worst stage's map, I02 logits, G03 what is kept for the backward pass; and
# I04 communicators do not grow with layers.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"
steps=2
# What kernels have beside the map: 32 MiB of cuBLASLt's, and a little.
reserve=$((33 << 20))

# map_bytes PLAN [RANK]
map_bytes() { "$RELEASE/pplan" dump "$1" --memory --rank "${2:-0}" | awk '$1 == "map" && !n++ { print $3 }'; }

# with_memory BYTES PLAN LOG OPTION...
with_memory() { CUDAEMU_MEMORY=$1 train cudaemu "${@:2}"; }

logits() {
    plan wide.plan gpt2 "layers=1 batch=4 vocab=4096" "devices = [0]; microbatches = 1"
    local map=$(map_bytes wide.plan)
    check "I02 a device of exactly map and reserve has room for 64 rows of 4096 logits and their gradient" '[ $map -gt $((2 * 64 * 4096 * 4)) ] && with_memory $((map + reserve)) wide.plan l'
    check "I02 one byte less than the map is said" 'CUDAEMU_MEMORY=$((map - 1)) refused 3 "no $map bytes of memory on cudaemu device 0" "$PRUN" wide.plan --device cudaemu --data t.txt --steps 1'
}

# Without recomputing it does not fit where it does with.
recomputed() {
    local size="layers=4 batch=40 seq=8 context=8" all few steps=1
    plan all.plan gpt2 "$size" "devices = [0]; microbatches = 1"
    plan few.plan gpt2 "$size" "devices = [0]; microbatches = 1; recompute h"
    all=$(map_bytes all.plan) few=$(map_bytes few.plan)
    check "G03 what is recomputed takes no memory" '[ $((all - few)) -gt $((reserve - (32 << 20))) ] && with_memory $((few + reserve)) few.plan few'
    check "G03 what is not does" 'CUDAEMU_MEMORY=$((few + reserve)) refused 3 "bytes of memory on cudaemu device 0" "$PRUN" all.plan --device cudaemu --data t.txt --steps 1'
    check "G03 and comes to the same losses" 'train cudaemu all.plan all && agree few all 1e-6'
}

stages() {
    plan uneven.plan gpt2 "layers=4" "mesh pp = 2; devices = [0, 1]; stage before h[1]; microbatches = 2"
    local first=$(map_bytes uneven.plan 0) last=$(map_bytes uneven.plan 1)
    local most=$((first > last ? first : last))
    check "I01 devices of exactly the worst stage's map and the reserve run it" '[ $first != $last ] && with_memory $((most + reserve)) uneven.plan l'
}

# communicators LAYERS: how many rank 0 splits off, each of which would end the run if it could not be made.
communicators() {
    local n=0
    plan many.plan gpt2 "layers=$1" "mesh dp = 2; devices = [0, 1]; microbatches = 1"
    until CUDAEMU_FAIL=ncclCommSplit:$((n + 1))=3@0 train cudaemu many.plan l --ranks threads >failed; do
        n=$((n + 1))
        grep -q ncclCommSplit failed && [ $n -lt 9 ] || break
    done
    echo $n
}

all() {
    local few
    logits
    recomputed
    stages
    few=$(communicators 2)
    check "I04 eight layers have the communicators of two" '[ $few -ge 1 ] && [ $few -le 4 ] && [ "$(communicators 8)" = $few ]'
}
make_text t.txt 2000
on_gpus all
