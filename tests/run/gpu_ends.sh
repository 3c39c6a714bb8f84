# How runs on GPUs end that go wrong: a failing call, kernel or communicator, too little memory, a rank that is lost.  Each ends
# soon, with status 3, and says which rank and which instruction.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
. "$TESTS/run/gpu.bash"

# soon STATUS TEXT COMMAND...: refused, within ten seconds.
soon() {
    local begun=$SECONDS
    refused "$@" && [ $((SECONDS - begun)) -le 10 ]
}

lost_rank() {
    start --data t.txt --steps 100000 --device cudaemu
    wait_until 'find_ranks; [ "$(cat log 2>/dev/null | wc -l)" -ge 2 ]' || return 1
    local begun=$SECONDS
    kill -KILL ${ranks[2]}
    ends && [ $status = 3 ] && grep -q "error: rank 2 was killed by SIGKILL" said && [ $((SECONDS - begun)) -le 10 ] || { cat said; return 1; }
}

# What cuBLASLt does not support, its GELU and plain products among them, has the same losses.
unsupported() {
    local faults
    faults=$(for ((i = 1; i <= 12; i++)); do printf 'cublasLtMatmulAlgoGetHeuristic:%d=15,' $i; done)
    "$PRUN" one.plan --device cudaemu --data t.txt --steps 2 --log lt 2>said && CUDAEMU_FAIL=${faults%,} "$PRUN" one.plan --device cudaemu --data t.txt --steps 2 --log own 2>said &&
        says "note: .*products of [0-9]+ shapes by loops, which are slow, as cuBLASLt does not support them" && paste <(field loss lt) <(field loss own) | awk '{ d = ($1 - $2) / $1; n += d < 1e-5 && d > -1e-5 } END { exit n != 2 }' || { cat said lt own; return 1; }
}

start() { "$PRUN" "$TMP/four.plan" --log "$TMP/log" "$@" >said 2>&1 & pid=$!; }

all() {
    plan one.plan gpt2 "layers=1" "devices = [0]" && plan four.plan gpt2 "layers=2" "mesh pp = 2, dp = 2; stage before h[1]; microbatches = 2"
    check "a kernel that fails is an error of the step, which says between which instructions" 'CUDAEMU_FAIL=kernel:200=700 soon 3 "error: rank 0, cudaemu 0: what it executed: an illegal memory access was encountered; " "$PRUN" one.plan --device cudaemu --data t.txt && says "(stream .compute. has done instruction [0-9]+ .* and not|all before instruction) [0-9]+ "'
    check "a call that fails names the instruction" 'CUDAEMU_FAIL=cublasLtMatmul:30=14 soon 3 "error: rank 0, cudaemu 0: cuBLASLt: an internal operation failed, at instruction " "$PRUN" one.plan --device cudaemu --data t.txt'
    # Whatever call comes next trips over it, often one into a library.
    for n in 2 5 11 17 23 31 37 41; do
        check "what fails because of an earlier kernel is not to blame ($n)" 'CUDAEMU_FAIL=kernel:$n=700 soon 3 "error: rank 0, cudaemu 0: what it executed: an illegal memory access was encountered; " "$PRUN" one.plan --device cudaemu --data t.txt'
    done
    check "a product that cuBLASLt does not support is no failure" unsupported
    check "so is a call that fails while it waits, by name" 'CUDAEMU_FAIL=cudaEventQuery:20=400 soon 3 "error: rank 0, cudaemu 0: cudaEventQuery: " "$PRUN" one.plan --device cudaemu --data t.txt'
    check "too little memory of the device is said in bytes" 'CUDAEMU_MEMORY=1M soon 3 "of memory on cudaemu device 0: it has 1048576, of which " "$PRUN" one.plan --device cudaemu --data t.txt'
    check "fewer devices than ranks are refused" 'CUDAEMU_DEVICES=3 soon 3 "error: rank 3 has no cudaemu device: 3 ranks before it are on this machine, which has 3" "$PRUN" four.plan --device cudaemu --data t.txt'
    check "a communicator with an error ends all ranks" 'CUDAEMU_FAIL=collective:40=3@1 soon 3 "error: rank 1, cudaemu 1: a communicator: internal error" "$PRUN" four.plan --device cudaemu --data t.txt --ranks threads'
    check "a rank that is lost ends the run" lost_rank
    # Ranks whose time is over in the same moment each say so.
    for how in processes threads; do
        check "a collective that is stuck ends the run, and says where ($how)" 'CUDAEMU_FAIL=collective:40=-1@1 soon 3 "stuck: no instruction was completed for 2 s; stream " "$PRUN" four.plan --device cudaemu --data t.txt --ranks $how --timeout 2 && once "^error: rank [0-3] ended: a device call failed" && says "has done instruction [0-9]+ .* and not [0-9]+ "'
    done
}
make_text t.txt $((64 * 16 + 1))
on_gpus all
