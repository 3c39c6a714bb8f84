# Ranks that MPI started: what is refused, what only one of them says or is given, files they write together, and how a run ends.
. "$TESTS/run/lib.bash"
. "$TESTS/run/mpi.bash"
make_plans
mkdir elsewhere
# ---- what is refused, by one rank ----

check "a number of processes that is not the plan's" 'refused 1 "error: MPI started 3 processes, but the plan has 4 ranks: use '\''mpirun -n 4'\''" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data && once "error:"'
check "a plan of one rank by several processes" 'refused 1 "error: MPI started 2 processes, but the plan has 1 rank" timeout 60 mpirun -n 2 "$PRUN" "$TMP/one.plan" $data && once "error:"'
check "--ranks" 'refused 2 "error: --ranks has no effect on ranks that MPI started" timeout 60 mpirun -n 4 "$PRUN" "$plan" $data --ranks threads && once "error:"'
check "data that are not there" 'refused 1 "absent.txt" timeout 60 mpirun -n 4 "$PRUN" "$plan" --data absent.txt && once "error:"'
check "another plan of as many ranks" 'refused 1 "error: rank 2 has another plan" timeout 60 mpirun -n 2 "$PRUN" "$plan" $data : -n 2 "$PRUN" "$TMP/stages.plan" $data && once "error:"'
check "other options" 'refused 1 "error: rank 3 has another plan" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data --steps 2 : -n 1 "$PRUN" "$plan" $data --steps 3 && once "error:"'
check "another number of ranks in the plan of one" 'refused 1 "error: MPI started 4 processes, but the plan has 1 rank" timeout 60 mpirun -n 3 "$PRUN" "$plan" $data : -n 1 "$PRUN" "$TMP/one.plan" $data && once "error:"'
check "data that one rank does not find" 'refused 1 "error: rank 1 ended" timeout 60 mpirun -n 1 "$PRUN" "$plan" --data t.txt : -wdir / -n 1 "$PRUN" "$plan" --data t.txt : -n 2 "$PRUN" "$plan" --data t.txt && says "t.txt"'
check "no plug-in" 'PRUN_PLUGINS=/absent refused 3 "error: prun was started by MPI, which it cannot use: this prun came without libprun_mpi.so" timeout 60 mpirun -n 1 "$PRUN" "$plan" $data'
check "srun without MPI" 'SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 refused 2 "srun --mpi=pmix" "$PRUN" "$plan" $data'
check "a save folder that is not the same for all" 'refused 1 "error: --save '\''s'\'': it is not the same folder for all ranks" timeout 60 mpirun -n 2 "$PRUN" "$plan" $data --save s : -wdir "$TMP/elsewhere" -n 2 "$PRUN" "$plan" $data --save s && once "error:"'

as_processes
check "a plan of one rank" 'timeout 60 mpirun -n 1 "$PRUN" one.plan $data --steps 2 --log one.log >said 2>&1 && "$PRUN" one.plan $data --steps 2 --log two.log 2>/dev/null && [ "$(figures one.log)" = "$(figures two.log)" ]'
lost_ranks
export OMPI_MCA_odls_base_sigkill_timeout=10         # mpirun gives its ranks so many seconds
asked_to_end 30
