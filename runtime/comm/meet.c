/* Meet: see meet.h.
 *
 * Each rank connects to rank 0 and says where it listens itself.  When all have, rank 0 tells all of them
 * where everybody is, and each connects to those below it.  Rank 0 sees a rank of its own machine at an address that
 * is nowhere else good: such a rank is found where rank 0 is. */
#include "runtime/comm/meet.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/world.h"
#include "runtime/stop.h"

/* Seconds: for one connection, and for what is said on it; for ranks to come to each other when all have come to rank 0; until it is said that rank 0 is waited for. */
static const double greeting_limit = 5, mesh_limit = 30, patience_untold = 10;

/* What is said first on each connection. */
typedef struct Hello { uint64_t run; int32_t rank, nrank; uint16_t port, pad[3]; } Hello;

/* Where a rank listens; family AF_UNSPEC: where rank 0 is. */
typedef union Address { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } Address;

/* ---- connections ---- */

static void limit(int fd, double seconds)
{
    struct timeval t = {.tv_sec = (time_t)seconds, .tv_usec = (suseconds_t)(1e6 * (seconds - (double)(time_t)seconds)) + 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* Until something has come; false: nothing has until `end`, or who is asked to stop need not come together first. */
static bool await_input(int fd, double end)
{
    struct pollfd f = {.fd = fd, .events = POLLIN};
    while (clock_seconds() < end && !stop_asked())
        if (poll(&f, 1, 100) > 0)
            return true;
    return false;
}

static bool give(int fd, const void *from, size_t bytes)
{
    return send(fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool take(int fd, void *to, size_t bytes)
{
    return recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static socklen_t length_of(const Address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

/* The port of either family lies in the same place. */
static Address at_port(Address a, uint16_t port)
{
    a.v4.sin_port = htons(port);
    return a;
}

static int try_to_connect(const Address *to)
{
    const int yes = 1;
    int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    limit(fd, greeting_limit);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, &to->any, length_of(to)) == 0)
        return fd;
    int reason = errno == EINPROGRESS ? ETIMEDOUT : errno;
    close(fd);
    errno = reason;
    return -1;
}

/* At any address of this machine: which of them others reach it by, it does not know.  0: at a port that is free. */
static int listen_at(uint16_t port)
{
    static const Address any[] = {{.v6 = {.sin6_family = AF_INET6}}, {.v4 = {.sin_family = AF_INET}}};
    const int yes = 1, no = 0;
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        const Address mine = at_port(any[i], port);
        int fd = socket(mine.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (bind(fd, &mine.any, length_of(&mine)) == 0 && listen(fd, WORLD_RANKS) == 0)
            return fd;
        int reason = errno;
        close(fd);
        errno = reason;
    }
    return -1;
}

static uint16_t port_of(int door)
{
    Address a = {0};
    socklen_t n = sizeof a;
    getsockname(door, &a.any, &n);
    return ntohs(a.v4.sin_port);
}

/* The next that comes through a door and is of this run, and where it is; -1: nobody has come until `end`. */
static int let_in(const Meeting *m, int door, double end, Hello *h, Address *from)
{
    const int yes = 1;
    while (await_input(door, end)) {
        socklen_t n = sizeof *from;
        *from = (Address){0};
        int fd = accept4(door, &from->any, &n, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        limit(fd, greeting_limit);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (take(fd, h, sizeof *h) && h->run == m->run)
            return fd;
        close(fd);                                   /* a stranger */
    }
    return -1;
}

static void close_all(const Meeting *m, int *fd)
{
    for (int i = 0; i < m->nrank; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* ---- rank 0 ---- */

static Address reachable(Address a)
{
    if (a.any.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr)) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = a.v6.sin6_port};
        memcpy(&v4.sin_addr, &a.v6.sin6_addr.s6_addr[12], sizeof v4.sin_addr);
        a.v4 = v4;
    }
    bool loop = a.any.sa_family == AF_INET ? ntohl(a.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET : IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
    if (loop)
        a.any.sa_family = AF_UNSPEC;
    return a;
}

static bool say_missing(const Meeting *m, const int *fd, double waited)
{
    fprintf(stderr, "error: waited %.1f s at port %d for rank", waited, m->port);
    for (int i = 1, n = 0; i < m->nrank; i++)
        if (fd[i] < 0)
            fprintf(stderr, "%s %d", n++ ? "," : "", i);
    fputc('\n', stderr);
    return false;
}

static bool fits(const Meeting *m, const Hello *h, const int *fd)
{
    if (h->nrank != m->nrank)
        fprintf(stderr, "error: rank %d was started as one of %d (WORLD_SIZE), and rank 0 as one of %d\n", h->rank, h->nrank, m->nrank);
    else if (h->rank <= 0 || h->rank >= m->nrank || fd[h->rank] >= 0)
        fprintf(stderr, "error: two processes were started as rank %d (RANK)\n", h->rank);
    else
        return true;
    return false;
}

static bool gather(const Meeting *m, int door, int *fd)
{
    Address at[WORLD_RANKS] = {0};
    double begun = clock_seconds(), end = begun + m->patience;
    for (int here = 1; here < m->nrank; here++) {
        Hello h;
        Address from;
        int c = let_in(m, door, end, &h, &from);
        if (c < 0)
            return say_missing(m, fd, clock_seconds() - begun);
        if (!fits(m, &h, fd)) {
            close(c);
            return false;
        }
        fd[h.rank] = c;
        at[h.rank] = at_port(reachable(from), h.port);
    }
    for (int i = 1; i < m->nrank; i++)
        if (!give(fd[i], at, (size_t)m->nrank * sizeof *at)) {
            fprintf(stderr, "error: rank %d was lost while ranks met\n", i);
            return false;
        }
    return true;
}

/* ---- the others ---- */

static bool say_lost(const Meeting *m, const char *why)
{
    fprintf(stderr, "error: rank %d cannot reach rank 0 at '%s', port %d (MASTER_ADDR, MASTER_PORT): %s\n", m->rank, m->host, m->port, why);
    return false;
}

/* One try at each address that rank 0's name has; -1: in vain, and why. */
static int try_names(const Meeting *m, const char **why)
{
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -1;
    snprintf(port, sizeof port, "%d", m->port);
    int e = getaddrinfo(m->host, port, &hints, &list);
    *why = e ? gai_strerror(e) : "";
    for (const struct addrinfo *i = list; i && fd < 0; i = i->ai_next) {
        Address a = {0};
        memcpy(&a, i->ai_addr, i->ai_addrlen < sizeof a ? i->ai_addrlen : sizeof a);
        fd = try_to_connect(&a);
        *why = strerror(errno);
    }
    if (list)
        freeaddrinfo(list);
    return fd;
}

/* It may be started later, and its name may come with it. */
static bool reach(const Meeting *m, int *fd)
{
    const char *why = "";
    double begun = clock_seconds();
    for (bool told = false; (*fd = try_names(m, &why)) < 0;) {
        double gone = clock_seconds() - begun;
        if (gone >= m->patience || stop_asked())
            return say_lost(m, why);
        if (gone >= patience_untold && !told)
            fprintf(stderr, "note: rank %d waits for rank 0 at '%s', port %d: %s\n", m->rank, m->host, m->port, why);
        told = gone >= patience_untold;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return true;
}

static bool connect_below(const Meeting *m, const Hello *mine, const Address *at, int *fd)
{
    Address first = {0};
    socklen_t n = sizeof first;
    getpeername(fd[0], &first.any, &n);
    for (int i = 1; i < m->rank; i++) {
        const Address to = at[i].any.sa_family == AF_UNSPEC ? at_port(first, ntohs(at[i].v4.sin_port)) : at[i];
        fd[i] = try_to_connect(&to);
        if (fd[i] < 0 || !give(fd[i], mine, sizeof *mine)) {
            fprintf(stderr, "error: rank %d cannot reach rank %d: %s\n", m->rank, i, strerror(errno));
            return false;
        }
    }
    return true;
}

static bool await_above(const Meeting *m, int door, int *fd)
{
    double end = clock_seconds() + mesh_limit;
    for (int missing = m->nrank - 1 - m->rank; missing > 0;) {
        Hello h;
        Address from;
        int c = let_in(m, door, end, &h, &from);
        if (c < 0) {
            fprintf(stderr, "error: rank %d was not reached by %d of the ranks above it within %.3g s\n", m->rank, missing, mesh_limit);
            return false;
        }
        if (h.rank > m->rank && h.rank < m->nrank && fd[h.rank] < 0) {
            fd[h.rank] = c;
            missing--;
        } else {
            close(c);
        }
    }
    return true;
}

static bool join(const Meeting *m, int door, int *fd)
{
    Address at[WORLD_RANKS];
    const Hello mine = {.run = m->run, .rank = m->rank, .nrank = m->nrank, .port = port_of(door)};
    if (!reach(m, &fd[0]))
        return false;
    if (!give(fd[0], &mine, sizeof mine) || !await_input(fd[0], clock_seconds() + m->patience) || !take(fd[0], at, (size_t)m->nrank * sizeof *at))
        return say_lost(m, "it ended, has said why this rank does not fit, or is of another run or version of prun");
    return connect_below(m, &mine, at, fd) && await_above(m, door, fd);
}

/* ---- all ---- */

bool meet_all(const Meeting *m, int *fd)
{
    for (int i = 0; i < m->nrank; i++)
        fd[i] = -1;
    int door = listen_at(m->rank == 0 ? m->port : 0);
    if (door < 0) {
        fprintf(stderr, "error: rank %d cannot listen at port %d: %s\n", m->rank, m->rank == 0 ? m->port : 0, strerror(errno));
        return false;
    }
    bool good = m->rank == 0 ? gather(m, door, fd) : join(m, door, fd);
    close(door);
    if (!good)
        close_all(m, fd);
    return good;
}
