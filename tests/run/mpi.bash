# mpi.bash -- helpers of the tests of ranks that MPI starts; a script sources it after lib.bash, and is
# skipped where there is no MPI.
[ -f "$RELEASE/libprun_mpi.so" ] || { sed -n 's/^absent: //p' "$TOP/build/mpi" 2>/dev/null | grep . || echo "prun was built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "there is no mpirun"; exit 77; }

# Open MPI: also as root; more ranks than cores; none kept to a core; nothing of it in the way of others.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_orte_tmpdir_base=$TMP
by=MPI variable=OMPI_COMM_WORLD_RANK start="mpirun -n"
. "$TESTS/run/hosted.bash"
