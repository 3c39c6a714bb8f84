# What runs of four ranks hold while they run does not grow, and when they end, in whatever
# way, nothing of it is left: files, shared memory, locks, processes.
. "$TESTS/run/lib.bash"
. "$TESTS/run/ranks.bash"
make_text t.txt 2000
make_text e.txt 300
make_plans
cp tensors.plan d.plan

# Other tests have files in /tmp, so temporary ones get a folder of their own.
export TMPDIR=$TMP/temporary
mkdir "$TMPDIR"
names() { ls -A "$TMPDIR"; ls -A /dev/shm | grep -E 'prun|pplan'; }
before=$(names)

# files PROCESS: what it has open, but for files of the checkpoints, which come and go.
files() { find "/proc/$1/fd" -type l -printf '%l\n' 2>/dev/null | grep -vE "^$TMP/d(/|$)" | sort; }
saving() { find "/proc/$1/fd" -type l -printf '%l\n' 2>/dev/null | grep -cE "^$TMP/d(/|$)"; }
# mapped PROCESS: files that it has mapped.
mapped() { awk '$6 ~ /^\// { print $6, $7, $8 }' "/proc/$1/maps" | sort -u; }
threads() { find "/proc/$1/task" -mindepth 1 -maxdepth 1 | wc -l; }

# held: all of that, of prun and its ranks.
held() {
    local p
    for p in $pid "${ranks[@]}"; do echo "process: $(threads $p) threads" && files $p && mapped $p; done
}
few_files() {
    local p
    for p in $pid "${ranks[@]}"; do [ "$(saving $p)" -le 4 ] || { ls -l "/proc/$p/fd"; return 1; }; done
}

# released: after the end.
released() {
    local p
    ends_within 10000 || return 1
    for p in $pid "${ranks[@]}"; do
        [ ! -e /proc/$p ] || grep -q ') Z' /proc/$p/stat || { echo "process $p is left"; return 1; }
    done
    [ "$(names)" = "$before" ] && flock -n d/lock true || { names; return 1; }
}

# ---- while it runs ----

(train d d 1) || cat said
go_on d --eval e.txt --eval-every 1
held >first
from=$(last_step d.log)
wait_until '[ "$(last_step d.log)" -ge $((from + 30)) ]'
held >later
check "after 30 saves and evaluations the same is open and mapped" 'diff first later'
check "of checkpoint files, only those that are being written" 'few_files'
check "nothing lies in /dev/shm or /tmp" '! grep -E "^/(dev/shm|tmp)/" later | grep -v "^$TMP/"'
check "shared memory is two files that only prun holds open" '[ "$(grep -c "memfd:.*pplan" <(files $pid))" = 2 ] && ! files ${ranks[2]} | grep memfd'
check "prun has four children, none of them dead" '[ "$(children $pid | wc -l)" = 4 ] && [[ $(states 0 1 2 3) != *Z* ]]'

# ---- when it has ended ----

kill -TERM $pid
check "asked to stop: nothing is left" 'released && [ $status = 0 ] && [ -z "$(find d -name "*tmp")" ]'
go_on d
kill -KILL "${ranks[2]}"
check "a rank killed: nothing is left" 'released && [ $status = 3 ]'
go_on d
kill -KILL $pid
check "prun killed: nothing is left" 'released && [ $status = 137 ]'
go_on d --timeout 2
kill -STOP "${ranks[0]}"
check "a rank stopped: nothing is left" 'released && [ $status = 3 ]'
go_on d
: >t.txt
check "data that become short: nothing is left" 'released && [ $status = 3 ] && says "became shorter"'
make_text t.txt 2000
from=$(latest d)
(train d d $((from + 1)) --resume "$TMP/d") &
pid=$!
check "the last step: nothing is left" 'released && [ $status = 0 ] && [ "$(ls -A d | tr "\n" " ")" = "latest lock $(printf "step-%08d step-%08d " $from $((from + 1)))" ]' || { cat said; ls -A d; }
