# scarce.bash -- helpers of the tests in which calls for memory fail; a script sources it after lib.bash.
scarce=$RELEASE/preload/scarce.so
limit=10                              # seconds until all of a run is gone

# count OF RANK COMMAND...: how many calls of a kind it makes; RANK "": all processes.
count() {
    local of=$1 rank=$2
    shift 2
    rm -f calls
    env SCARCE_OF="$of" ${rank:+SCARCE_RANK=$rank} SCARCE_COUNT="$TMP/calls" LD_PRELOAD="$scarce" "$@" >/dev/null 2>&1
    cat calls 2>/dev/null || echo 0
}

# failing N OF RANK COMMAND...: the N-th of them fails; $status, $took (ms), and `said`, `out`, `hit`.
failing() {
    local n=$1 of=$2 rank=$3 began
    shift 3
    rm -f hit
    began=${EPOCHREALTIME/./}
    timeout 60 env SCARCE_OF="$of" ${rank:+SCARCE_RANK=$rank} ${left:+SCARCE_LEFT=1} SCARCE_AT="$n" SCARCE_SAID="$TMP/hit" LD_PRELOAD="$scarce" "$@" >out 2>said
    status=$?
    took=$(((${EPOCHREALTIME/./} - began) / 1000))
}

# wrong WHAT: one failure that did not end as it should.
wrong() {
    nwrong=$((nwrong + 1))
    [ $nwrong -gt 5 ] || { echo "$1: exit $status after $took ms, $(cat hit)"; head -n 8 said; }
}

# sweep OF RANK MOST COMMAND...: fail each call, or MOST of them at even distances, or with $last set the last so many; `begin` comes
# before each run, and `sound` judges it when it was status 0 or 3.  $nrun, $nfailed, $nwrong.
sweep() {
    local of=$1 rank=$2 most=$3 n step
    shift 3
    nrun=0 nfailed=0 nwrong=0
    begin
    n=$(count "$of" "$rank" "$@")
    step=$((n > most ? n / most : 1))
    [ -z "${last:-}" ] || most=$n step=1
    for ((k = n > most ? 1 + step / 2 : n - ${last:-n} + 1; k <= n; k += step)); do
        begin
        failing "$k" "$of" "$rank" "$@"
        nrun=$((nrun + 1))
        [ $status -eq 0 ] || nfailed=$((nfailed + 1))
        if [ $took -ge $((limit * 1000)) ]; then wrong "too late"
        elif [ $status -eq 0 ]; then sound || wrong "done, but otherwise"
        elif ! ended || ! grep -qE "^(error|terminate called after throwing)" said; then wrong "no clear message"
        else sound || wrong "something partial"; fi
    done
}

# ended: as a machine that failed.  A library of others may say so and abort (134), or crash,
# which prun says (139).
ended() { [ $status -eq 3 ] || { grep -q 'libdnnl\|libstdc' hit && [ $status -eq 134 -o $status -eq 139 ]; }; }

# swept NAME LEAST: the verdict on a sweep of which at least LEAST runs had to fail.
swept() {
    check "$1: $nfailed of $nrun calls end the run, with a message and nothing partial; the others do no harm" '[ $nwrong -eq 0 ] && [ $nfailed -ge '"$2"' ]'
}
