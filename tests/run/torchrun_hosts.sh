# Ranks that torchrun's variables start on two machines, each of which has a torchrun of its own; rank 0's machine is entered last.
. "$TESTS/run/lib.bash"
. "$TESTS/run/torchrun.bash"
. "$TESTS/run/hosts.bash"
export WORLD_SIZE=4 MASTER_ADDR=10.77.0.1 MASTER_PORT=4712
ranks() {
    FIRST=2 timeout 100 "$TMP/far" far "$TMP/torchrun" 2 "$@" &
    local far=$! status
    sleep 0.3
    FIRST=0 timeout 100 "$TMP/near" "$TMP/torchrun" 2 "$@"
    status=$?
    wait $far && return $status
}
machines
losses
