# mpi.bash -- helpers of the tests of ranks that MPI starts; a script sources it after lib.bash, and is
# skipped where there is no MPI.
[ -f "$RELEASE/libprun_mpi.so" ] || { sed -n 's/^absent: //p' "$TOP/build/mpi" 2>/dev/null | grep . || echo "prun was built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "there is no mpirun"; exit 77; }
PRUN=$RELEASE/prun

# Open MPI: also as root; more ranks than cores; none kept to a core; nothing of it in the way of others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_orte_tmpdir_base=$TMP

# rank_process RANK: of the run whose command line names a file of this folder.
rank_process() {
    local f
    for f in /proc/[0-9]*; do
        [ "$(cat "$f/comm" 2>/dev/null)" = prun ] && tr '\0' ' ' 2>/dev/null <"$f/cmdline" | grep -qF "$TMP/" || continue
        tr '\0' '\n' 2>/dev/null <"$f/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "${f#/proc/}"
    done
}
