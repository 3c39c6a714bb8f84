# hosts.bash -- two machines: network namespaces with a cable between them, with names, process numbers and kernels of their own; and tests
# of ranks on them.  A script sources it after hosted.bash, or is skipped, and defines `ranks COMMAND...`: two of four on each machine.
[ "$(id -u)" = 0 ] || { echo "network namespaces need root"; exit 77; }
command -v ip >/dev/null || { echo "there is no ip (Debian: iproute2)"; exit 77; }

here=here$$ there=there$$
cleanup() { ip netns del $here; ip netns del $there; } 2>/dev/null
trap cleanup EXIT
cable() {
    ip netns add $here && ip netns add $there && ip link add c$$ netns $here type veth peer name c$$ netns $there || return
    ip -n $here addr add 10.77.0.1/24 dev c$$ && ip -n $there addr add 10.77.0.2/24 dev c$$ || return
    for ns in $here $there; do ip -n $ns link set lo up && ip -n $ns link set c$$ up || return; done
}

# enter NAMESPACE NAME: a command that runs the words after it there; what tells kernels apart is a file.
enter() {
    echo "$2" >"$2.kernel"
    cat >"$2" <<END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
[ "$2" = near ] || shift                             # the name of the machine
exec ip netns exec $1 unshare --uts --pid --fork --mount-proc bash -c 'hostname $2; mount --bind "$TMP/$2.kernel" /proc/sys/kernel/random/boot_id && exec bash -c "\$*"' 0 "\$@"
END
    chmod +x "$2"
}
enter $here near
enter $there far
cable >said 2>&1 && ./near true >said 2>&1 || { echo "no network namespaces here: $(head -n 1 said)"; exit 77; }

make_text t.txt 2000
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp' -o s.plan >/dev/null
run="$PRUN $TMP/s.plan --data $TMP/t.txt"

machines() {
    ranks hostname >said 2>&1
    check "two ranks on each machine" '[ "$(sort said | uniq -c | tr -s " \n" " ")" = " 2 far 2 near " ] || { cat said; false; }'
    check "the same log and checkpoint as by processes of one machine" 'ranks $run --steps 4 --save $TMP/far.dir --log $TMP/far.log >said 2>&1 && $run --steps 4 --save near.dir --log near.log 2>/dev/null &&
        [ "$(figures near.log)" = "$(figures far.log)" ] && same near.dir/step-00000004 far.dir/step-00000004 || { cat said; false; }'
    if [ -f "$TOP/build/emu/libprun_cudaemu.so" ]; then gpus; else echo "skip GPUs of two machines: $(cut -c 9- "$TOP/build/emu/absent")"; fi
}

# Two devices a machine.
gpus() {
    local run="$run --device cudaemu --steps 4"
    cp "$RELEASE"/libprun_mpi.so "$TOP/build/emu/libprun_cudaemu.so" .
    export PRUN_PLUGINS=$TMP CUDAEMU_DEVICES=2
    CUDAEMU_DEVICES=4 $run --save near.gpus --log near.log 2>said || cat said
    check "GPUs of both machines: the same log and checkpoint as on one" 'ranks $run --save $TMP/far.gpus --log $TMP/far.log >said 2>&1 && [ "$(figures near.log)" = "$(figures far.log)" ] && same near.gpus/step-00000004 far.gpus/step-00000004 || { cat said; false; }'
    check "NCCL meets where NCCL_COMM_ID says" 'NCCL_COMM_ID=10.77.0.1:$((10000 + $$ % 20000)) ranks $run --log $TMP/far.log >said 2>&1 && [ "$(figures near.log)" = "$(figures far.log)" ] || { cat said; false; }'
    check "a GPU that two ranks of a machine have is refused" 'CUDAEMU_DEVICES=1 ranks $run >said 2>&1; once "^error: rank 1 has no cudaemu device of its own: the only one that it sees is rank 0'\''s" && once "^error: rank 3 .* rank 2'\''s"'
    printf '#!/bin/bash\nCUDA_VISIBLE_DEVICES=$(($%s %% 2)) exec "$@"\n' $variable >one_each
    chmod +x one_each
    check "ranks that see one GPU each" 'ranks $TMP/one_each $run --log $TMP/far.log >said 2>&1 && [ "$(figures near.log)" = "$(figures far.log)" ] || { cat said; false; }'
    unset PRUN_PLUGINS CUDAEMU_DEVICES
}

begin() {
    rm -rf b.log said
    ranks $run --steps 1000000 --log $TMP/b.log "$@" >said 2>&1 &
    pid=$!
    wait_until '[ -s b.log ] && [ "$(wc -l <b.log)" -gt 3 ]'
}
# ends_within SECONDS
ends_within() {
    local began=$SECONDS
    gone
    [ $((SECONDS - began)) -le "$1" ] || { echo "after $((SECONDS - began)) s"; return 1; }
}

losses() {
    begin
    kill -KILL "$(rank_process 3)"
    check "a rank that is killed on the other machine" 'ends_within 15 && once "^error: rank 3 died"'
    wait $pid || true
    begin
    ip -n $there link set c$$ down
    check "the cable is cut: the ranks of both machines say so, and end" 'ends_within 25 && grep -E "^error: rank [23] has not been heard of" said || { cat said; false; }'
    kill $pid 2>/dev/null
    wait $pid || true
}
