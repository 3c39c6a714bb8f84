# Ranks that MPI starts on two machines, to one of which it comes by a command that enters it.
. "$TESTS/run/lib.bash"
. "$TESTS/run/mpi.bash"
. "$TESTS/run/hosts.bash"
export OMPI_MCA_plm_rsh_agent=$TMP/far OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1
export OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
ranks() { timeout 100 "$TMP/near" mpirun -n 4 --host 10.77.0.1:2,10.77.0.2:2 "$@"; }
machines
losses
