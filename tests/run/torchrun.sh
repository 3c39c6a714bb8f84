# Ranks that torchrun's variables start, without MPI: how they come together, what only one of them says or is given, files they write
# together, how a run ends; on the cpu and on the emulator of GPUs.
. "$TESTS/run/lib.bash"
. "$TESTS/run/torchrun.bash"
make_plans

# by_rank NAME WORDS...: a command that each rank runs with other words: `rank R` stands before those of rank R alone.
by_rank() { printf '#!/bin/bash\n%s\n' "$2" >"$1"; chmod +x "$1"; }

# ---- how they come together ----

check "a number of processes that is not the plan's" 'refused 1 "error: torchrun started 3 processes, but the plan has 4 ranks: " timeout 60 $start 3 "$PRUN" "$plan" $data && once "error:"'
check "--ranks" 'refused 2 "error: --ranks has no effect on ranks that torchrun started" timeout 60 $start 4 "$PRUN" "$plan" $data --ranks threads && once "error:"'
check "data that are not there" 'refused 1 "absent.txt" timeout 60 $start 4 "$PRUN" "$plan" --data absent.txt && once "error:"'
by_rank other 'if [ $RANK = 2 ]; then exec "$1" "$3" "${@:4}"; else exec "$1" "$2" "${@:4}"; fi'
check "another plan of as many ranks" 'refused 1 "error: rank 2 has another plan" timeout 60 $start 4 "$TMP/other" "$PRUN" "$plan" "$TMP/stages.plan" $data && once "error:"'
by_rank more 'if [ $RANK = 3 ]; then exec "$@" --steps 3; else exec "$@" --steps 2; fi'
check "other options" 'refused 1 "error: rank 3 has another plan" timeout 60 $start 4 "$TMP/more" "$PRUN" "$plan" $data && once "error:"'
mkdir elsewhere
by_rank away '[ $RANK -lt 2 ] || cd "$TMP/elsewhere"; exec "$@"'
check "a save folder that is not the same for all" 'refused 1 "error: --save '\''s'\'': it is not the same folder for all ranks" timeout 60 $start 4 "$TMP/away" "$PRUN" "$plan" $data --save s && once "error:"'
by_rank size '[ $RANK != 1 ] || WORLD_SIZE=5; exec "$@"'
check "another WORLD_SIZE" 'refused 3 "error: rank 1 was started as one of 5 (WORLD_SIZE), and rank 0 as one of 4" timeout 60 $start 4 "$TMP/size" "$PRUN" "$plan" $data'
by_rank twice '[ $RANK != 3 ] || RANK=2; exec "$@"'
check "a RANK that two have" 'refused 3 "error: two processes were started as rank 2 (RANK)" timeout 60 $start 4 "$TMP/twice" "$PRUN" "$plan" $data'
by_rank run '[ $RANK != 3 ] || export TORCHELASTIC_RUN_ID=other; exec timeout 5 "$@"'
check "another run is turned away" 'timeout 60 $start 4 "$TMP/run" "$PRUN" "$plan" $data >said 2>&1; once "error: rank 3 cannot reach rank 0 at .*: it ended, has said why this rank does not fit, or is of another run"'
check "a rank that is none of them" 'RANK=4 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 refused 3 "error: RANK='\''4'\'': expected 0 to 3" "$PRUN" "$plan" $data'
check "a port that is none" 'MASTER_PORT=70000 refused 3 "error: MASTER_PORT='\''70000'\'': expected 1 to 65535" timeout 60 $start 4 "$PRUN" "$plan" $data'

# Rank 0 comes last, and its port is looked at by a stranger.
by_rank late '[ $RANK != 0 ] || sleep 1; exec "$@"'
by_rank strange 'if [ $RANK = 3 ]; then until (echo GET / >/dev/tcp/127.0.0.1/$MASTER_PORT) 2>/dev/null; do sleep 0.1; done; fi; exec "$@"'
check "ranks come one after the other, and strangers are turned away" 'timeout 60 $start 4 "$TMP/late" "$TMP/strange" "$PRUN" "$plan" $data --steps 2 >said 2>&1 && once "^trained: step 2 of 2"'

as_processes
# torchrun itself listens at the port that it names, and says so.
by_rank taken '[ $RANK != 0 ] || { python3 -c "import socket, sys, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((\"\", $MASTER_PORT)); s.listen(); time.sleep(60)" & trap "kill $!" EXIT; sleep 0.5; }
TORCHELASTIC_USE_AGENT_STORE=True "$@"'
check "a port at which torchrun listens itself" 'timeout 60 $start 4 "$TMP/taken" "$PRUN" "$plan" $data --steps 2 --log l >said 2>&1 && cmp <(figures l) <(grep grad_norm near.log | head -n 2 | figures) || { cat said; false; }'
lost_ranks
asked_to_end 30
