# ranks.bash -- helpers of the tests of runs of many processes; a script sources it after
# lib.bash.  $pid is the launcher, ${ranks[R]} the process of rank R; `said` holds what was
# said.  A run names its files with their whole paths: by these it is found.
PRUN=$RELEASE/prun

# processes: those of the run, by a file of this folder in their command lines; zombies
# have none.  It starts none itself: many of them would use up process numbers, and with
# them what the shell remembers of the run.
processes() {
    local f words
    for f in /proc/[0-9]*; do
        words=()
        { mapfile -d '' words <"$f/cmdline"; } 2>/dev/null
        [[ "${words[*]}" != *"$TMP/"* ]] || echo "${f#/proc/}"
    done
}
alive() { [ -n "$(processes)" ]; }

# children PROCESS: those that it started.
children() {
    local f line parent
    for f in /proc/[0-9]*/stat; do
        { read -r line <"$f"; } 2>/dev/null || continue
        read -r _ parent _ <<<"${line##*) }"
        [ "$parent" != "$1" ] || echo "${line%% *}"
    done
}

# ends: the run, started with start(), ended, and nothing of it is left.
ends() {
    wait_until '! alive' || { processes; kill -KILL $(processes); return 1; }
    wait $pid 2>/dev/null
    status=$?
}

# find_ranks: their processes, in order; process numbers need not be.
find_ranks() {
    local p n
    ranks=()
    for p in $(children $pid); do
        n=$(tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | sed -nE 's/^PRUN_RANK=([0-9]+),.*/\1/p')
        [ -z "$n" ] || ranks[n]=$p
    done
}

# states RANK...: how they are, as /proc says: R, S, D or T.
states() { for i; do sed 's/.*) //' "/proc/${ranks[i]}/stat" | cut -c1; done | tr -d '\n'; }

says() { grep -qE -- "$1" said || { echo "not said: $1"; cat said; return 1; }; }
once() { [ "$(grep -c "$1" said)" = 1 ] || { echo "not once: $1"; cat said; return 1; }; }
