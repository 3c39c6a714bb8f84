# torchrun.bash -- helpers of the tests of ranks that torchrun's variables make ranks; a script sources it after lib.bash.
# `torchrun N COMMAND...` is torchrun in as far as prun sees it: N processes with these variables, from rank $FIRST on, all given the signal
# that it gets; its status is that of the first that fails.
cat >torchrun <<'END'
#!/bin/bash
n=$1 status=0 ranks=()
shift
# A job's own port: below those that the kernel gives to others.
export WORLD_SIZE=${WORLD_SIZE:-$n} MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-$((10000 + $$ % 20000))}
trap 'kill -TERM "${ranks[@]}"' TERM
for ((i = 0; i < n; i++)); do
    RANK=$((${FIRST:-0} + i)) LOCAL_RANK=$i "$@" <&0 &
    ranks+=($!)
done
while wait -n; s=$?; [ $s != 127 ]; do               # 127: none is left; 143: it was told to end
    [ $s != 143 ] && [ $status = 0 ] && [ $s != 0 ] || continue
    status=$s
    kill -TERM "${ranks[@]}" 2>/dev/null             # the first that fails ends all
done
exit $status
END
chmod +x torchrun
by=torchrun variable=RANK start="$TMP/torchrun"
. "$TESTS/run/hosted.bash"
