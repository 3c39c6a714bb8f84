/* libprun_mpi.so: a Net by MPI.
 *
 * Messages only, none of which waits: MPI's own collectives neither add in the order of the
 * members nor tell whom they wait for.  Calls are made one at a time, which every MPI allows. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/comm/net.h"
#include "runtime/plugin.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static MPI_Comm world;                /* of our own, apart from all others */

_Static_assert(sizeof(MPI_Request) <= sizeof(NetRequest), "a request fits");

static bool went_well(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (code == MPI_SUCCESS)
        return true;
    MPI_Error_string(code, text, &n);
    fprintf(stderr, "error: MPI cannot %s: %s\n", what, text);
    return false;
}

/* Messages whose bytes an int cannot count have a type of their own. */
static MPI_Datatype type_of(int64_t bytes, int *count)
{
    enum { UNIT = 1 << 20 };
    if (bytes <= INT32_MAX) {
        *count = (int)bytes;
        return MPI_BYTE;
    }
    MPI_Datatype unit, whole;
    const int length[] = {(int)(bytes / UNIT), (int)(bytes % UNIT)};
    const MPI_Aint at[] = {0, bytes / UNIT * UNIT};
    MPI_Type_contiguous(UNIT, MPI_BYTE, &unit);
    MPI_Type_create_struct(2, length, at, (const MPI_Datatype[]){unit, MPI_BYTE}, &whole);
    MPI_Type_commit(&whole);
    MPI_Type_free(&unit);
    *count = 1;
    return whole;
}

/* It lives on until what was begun with it is over. */
static void release(MPI_Datatype *type)
{
    if (*type != MPI_BYTE)
        MPI_Type_free(type);
}

static bool mpi_open(int *rank, int *nrank)
{
    int has;
    if (!went_well(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has), "start"))
        return false;
    if (has < MPI_THREAD_SERIALIZED) {
        fprintf(stderr, "error: this MPI can only be called by one thread (level %d), and prun needs MPI_THREAD_SERIALIZED\n", has);
        return false;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, rank);
    MPI_Comm_size(world, nrank);
    return true;
}

static bool mpi_send(int to, int tag, const void *from, int64_t bytes, NetRequest *out)
{
    MPI_Request r;
    int count;
    pthread_mutex_lock(&one_at_a_time);
    MPI_Datatype type = type_of(bytes, &count);
    bool good = went_well(MPI_Isend(from, count, type, to, tag, world, &r), "send");
    release(&type);
    pthread_mutex_unlock(&one_at_a_time);
    memcpy(out, &r, sizeof r);
    return good;
}

static bool mpi_recv(int from, int tag, void *to, int64_t bytes, NetRequest *out)
{
    MPI_Request r;
    int count;
    pthread_mutex_lock(&one_at_a_time);
    MPI_Datatype type = type_of(bytes, &count);
    bool good = went_well(MPI_Irecv(to, count, type, from == NET_ANY ? MPI_ANY_SOURCE : from, tag, world, &r), "receive");
    release(&type);
    pthread_mutex_unlock(&one_at_a_time);
    memcpy(out, &r, sizeof r);
    return good;
}

static NetState mpi_test(NetRequest *q, int64_t *bytes)
{
    MPI_Request r;
    MPI_Status status;
    MPI_Count n = 0;
    int over = 0;
    memcpy(&r, q, sizeof r);
    pthread_mutex_lock(&one_at_a_time);
    bool good = went_well(MPI_Test(&r, &over, &status), "tell what has arrived");
    if (good && over)
        MPI_Get_elements_x(&status, MPI_BYTE, &n);
    pthread_mutex_unlock(&one_at_a_time);
    memcpy(q, &r, sizeof r);
    *bytes = n;
    return !good ? NET_FAILED : over ? NET_DONE : NET_UNDER_WAY;
}

static void mpi_cancel(NetRequest *q)
{
    MPI_Request r;
    memcpy(&r, q, sizeof r);
    pthread_mutex_lock(&one_at_a_time);
    MPI_Cancel(&r);
    MPI_Request_free(&r);
    pthread_mutex_unlock(&one_at_a_time);
}

static void mpi_abort(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void mpi_close(void)
{
    MPI_Comm_free(&world);
    MPI_Finalize();
}

static const Net net_mpi = {
    .name = "MPI",
    .ends_all = true,
    .open = mpi_open,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .abort = mpi_abort,
    .close = mpi_close,
};

const Plugin prun_plugin = {.abi = PLUGIN_ABI, .version = PPLAN_VERSION, .net = &net_mpi};
