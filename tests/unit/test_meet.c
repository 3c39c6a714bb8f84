/* Ranks that know only where rank 0 is: they come together in any order, past strangers, and say who has not come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/meet.h"

enum { RANKS = 5, RUN = 7 };

/* It comes after so many milliseconds, and once another has ended. */
typedef struct Comer Comer;
struct Comer { Meeting m; int fd[RANKS]; bool good; long wait; const Comer *after; atomic_bool ended; pthread_t thread; };

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A socket that listens at a port of this machine; -1: it cannot. */
static int door_at(uint16_t port)
{
    const int yes = 1;
    const struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Below those that the kernel gives to others, which are the ranks' own. */
static uint16_t free_port(void)
{
    static unsigned tries;
    for (int fd; tries < 1000;) {
        uint16_t port = (uint16_t)(10000 + (16 * (unsigned)getpid() + tries++) % 20000);
        if ((fd = door_at(port)) < 0)
            continue;
        close(fd);
        return port;
    }
    fail_msg("no port is free");
    return 0;
}

static void *come(void *ctx)
{
    Comer *c = ctx;
    sleep_ms(c->wait);
    while (c->after && !c->after->ended)
        sleep_ms(1);
    c->good = meet_all(&c->m, c->fd);
    c->ended = true;
    return NULL;
}

static Comer comer(int rank, int nrank, uint16_t port, double patience)
{
    return (Comer){.m = {.host = "localhost", .port = port, .run = RUN, .rank = rank, .nrank = nrank, .patience = patience}};
}

/* What ranks say on stderr until they have come, or not. */
static const char *have_come(Comer *c, int n)
{
    static char text[4096];
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    for (int i = 0; i < n; i++)
        assert_int_equal(pthread_create(&c[i].thread, NULL, come, &c[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(c[i].thread, NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void assert_says(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in:\n%s", what, text);
}

static void close_all(Comer *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (c[i].fd[k] >= 0)
                close(c[i].fd[k]);
}

/* Each tells each other who it is. */
static void assert_connected(Comer *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            assert_true(i == k ? c[i].fd[k] == -1 : write(c[i].fd[k], &i, sizeof i) == sizeof i);
    for (int i = 0; i < n; i++)
        for (int k = 0, who; k < n; k++)
            if (i != k) {
                assert_int_equal(recv(c[i].fd[k], &who, sizeof who, MSG_WAITALL), sizeof who);
                assert_int_equal(who, k);
            }
}

static void in_any_order(void **unused)
{
    static const long late[][RANKS] = {{0, 0, 0, 0, 0}, {300, 0, 50, 0, 100}, {0, 400, 300, 200, 100}};
    (void)unused;
    for (size_t k = 0; k < sizeof late / sizeof *late; k++) {
        Comer c[RANKS];
        uint16_t port = free_port();
        for (int i = 0; i < RANKS; i++) {
            c[i] = comer(i, RANKS, port, 30);
            c[i].wait = late[k][i];
        }
        assert_string_equal(have_come(c, RANKS), "");
        assert_connected(c, RANKS);
        int again = door_at(port);                   /* for NCCL, with connections at the port still there */
        assert_true(again >= 0);
        close(again);
        close_all(c, RANKS);
    }
}

static void a_rank_that_does_not_come(void **unused)
{
    (void)unused;
    uint16_t port = free_port();
    Comer c[] = {comer(0, 4, port, 2), comer(2, 4, port, 10)};
    const char *said = have_come(c, 2);
    assert_false(c[0].good || c[1].good);
    assert_says(said, "error: waited ");
    assert_says(said, " for rank 1, 3\n");
    assert_says(said, "error: rank 2 cannot reach rank 0 at 'localhost', port ");
}

static void no_rank_0(void **unused)
{
    (void)unused;
    Comer c = comer(1, 2, free_port(), 0.3);
    assert_says(have_come(&c, 1), "(MASTER_ADDR, MASTER_PORT): Connection refused\n");
    assert_false(c.good);
}

static void a_port_that_is_taken(void **unused)
{
    (void)unused;
    uint16_t port = free_port();
    int fd = door_at(port);
    Comer c = comer(0, 2, port, 5);
    assert_says(have_come(&c, 1), ": Address already in use\n");
    assert_false(c.good);
    close(fd);
}

/* One of another run is turned away, and nobody else. */
static void strangers(void **unused)
{
    (void)unused;
    uint16_t port = free_port();
    Comer c[] = {comer(0, 2, port, 30), comer(1, 2, port, 30), comer(1, 2, port, 30)};
    c[1].after = &c[2];
    c[2].m.run = RUN + 1;
    assert_says(have_come(c, 3), "or is of another run or version of prun");
    assert_true(c[0].good && c[1].good && !c[2].good);
    close_all(c, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_order),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(no_rank_0),
        cmocka_unit_test(a_port_that_is_taken),
        cmocka_unit_test(strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
