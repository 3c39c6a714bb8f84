/* The operations of bench_comm in MPI:
 *
 *     mpirun -np N peer_mpi [BYTES [OPERATION]]
 *
 * BYTES is the largest size, or that of the OPERATION. */
#include <mpi.h>

#include "bench/comm_loop.h"

static CommPeer peer;

static void call(CommOp op, int64_t count)
{
    int n = (int)count, part = n / peer.nrank;
    int next = (peer.rank + 1) % peer.nrank, previous = (peer.rank + peer.nrank - 1) % peer.nrank;
    switch (op) {
    case BENCH_ALL_REDUCE: MPI_Allreduce(MPI_IN_PLACE, peer.send, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    case BENCH_ALL_GATHER: MPI_Allgather(MPI_IN_PLACE, part, MPI_FLOAT, peer.send, part, MPI_FLOAT, MPI_COMM_WORLD); break;
    case BENCH_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(peer.send, peer.recv, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    default:
        MPI_Sendrecv(peer.send, n, MPI_FLOAT, next, 0, peer.recv, n, MPI_FLOAT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void slowest(double *seconds, int n)
{
    MPI_Allreduce(MPI_IN_PLACE, seconds, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    peer = (CommPeer){.name = "mpi", .send = loop_buffer(ROOM), .recv = loop_buffer(ROOM), .call = call, .barrier = barrier, .slowest = slowest};
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.nrank);
    loop_all(&peer, argc > 1 ? atoll(argv[1]) : LARGEST, argc > 2 ? argv[2] : NULL);
    MPI_Finalize();
    return 0;
}
