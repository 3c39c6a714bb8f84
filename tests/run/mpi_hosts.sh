# Ranks on two machines: two network namespaces with a cable between them, with names and process numbers of their own.  MPI comes from
# one to the other by a command that enters it.
. "$TESTS/run/lib.bash"
. "$TESTS/run/mpi.bash"
[ "$(id -u)" = 0 ] || { echo "network namespaces need root"; exit 77; }
command -v ip >/dev/null || { echo "there is no ip (Debian: iproute2)"; exit 77; }

here=here$$ there=there$$
cleanup() { ip netns del $here; ip netns del $there; } 2>/dev/null
trap cleanup EXIT
cable() {
    ip netns add $here && ip netns add $there && ip link add c$$ netns $here type veth peer name c$$ netns $there || return
    ip -n $here addr add 10.77.0.1/24 dev c$$ && ip -n $there addr add 10.77.0.2/24 dev c$$ || return
    for ns in $here $there; do ip -n $ns link set lo up && ip -n $ns link set c$$ up || return; done
    ip netns exec $here unshare --uts --pid --fork --mount-proc true
}
cable >said 2>&1 || { echo "no network namespaces here: $(head -n 1 said)"; exit 77; }

# enter NAMESPACE NAME: a command that runs the words after it there.
enter() {
    cat >"$2" <<END
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
[ "$2" = near ] || shift                             # the name of the machine
exec ip netns exec $1 unshare --uts --pid --fork --mount-proc bash -c 'hostname $2; exec bash -c "\$*"' 0 "\$@"
END
    chmod +x "$2"
}
enter $here near
enter $there far
export OMPI_MCA_plm_rsh_agent=$TMP/far OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1
export OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24

make_text t.txt 2000
"$RELEASE/pplan" plan "$MODELS/tiny/tiny_gpt2.pmodel" -c laptop4 -D layers=2 --with 'mesh pp = 2, dp = 2; microbatches = 4; stage before h[1]; shard optimizer by dp' -o s.plan >/dev/null
run="$PRUN $TMP/s.plan --data $TMP/t.txt"
mpi() { timeout 100 "$TMP/near" mpirun -n 4 --host 10.77.0.1:2,10.77.0.2:2 "$@"; }
once() { [ "$(grep -cE "$1" said)" = 1 ] || { echo "not once: $1"; cat said; return 1; }; }
gone() { wait_until '[ -z "$(rank_process 0)$(rank_process 1)$(rank_process 2)$(rank_process 3)" ]'; }

mpi hostname >said 2>&1
check "two ranks on each machine" '[ "$(sort said | uniq -c | tr -s " \n" " ")" = " 2 far 2 near " ] || { cat said; false; }'
check "the same log and checkpoint as by processes of one machine" 'mpi $run --steps 4 --save $TMP/far.dir --log $TMP/far.log >said 2>&1 && $run --steps 4 --save near.dir --log near.log 2>/dev/null &&
    [ "$(figures near.log)" = "$(figures far.log)" ] && same near.dir/step-00000004 far.dir/step-00000004 || { cat said; false; }'

begin() {
    rm -rf b.log said
    mpi $run --steps 1000000 --log $TMP/b.log >said 2>&1 &
    pid=$!
    wait_until '[ -s b.log ] && [ "$(wc -l <b.log)" -gt 3 ]'
}
# ends_within SECONDS
ends_within() {
    local began=$SECONDS
    gone
    [ $((SECONDS - began)) -le "$1" ] || { echo "after $((SECONDS - began)) s"; return 1; }
}
begin
kill -KILL "$(rank_process 3)"
check "a rank that is killed on the other machine" 'ends_within 10 && once "^error: rank 3 died"'
wait $pid || true
begin
ip -n $there link set c$$ down
check "the cable is cut: the ranks of both machines say so, and end" 'ends_within 15 && grep -E "^error: rank [23] has not been heard of" said || { cat said; false; }'
kill $pid 2>/dev/null
wait $pid || true
