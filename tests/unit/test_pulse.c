/* What a rank makes of others that it never hears of, over a net that takes all and delivers nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/comm/net.h"
#include "runtime/comm/pulse.h"

static bool mute_send(int to, int tag, const void *from, int64_t bytes, NetRequest *out)
{
    (void)to, (void)tag, (void)from, (void)bytes;
    *out = 0;
    return true;
}

static bool mute_recv(int from, int tag, void *to, int64_t bytes, NetRequest *out)
{
    (void)from, (void)tag, (void)to, (void)bytes;
    *out = 1;
    return true;
}

/* What was sent is on its way at once; nothing ever arrives. */
static NetState mute_test(NetRequest *q, int64_t *bytes)
{
    *bytes = 0;
    return *q == 0 ? NET_DONE : NET_UNDER_WAY;
}

static void mute_cancel(NetRequest *q) { (void)q; }
static void mute_abort(int status) { (void)status; }

static const Net mute = {.name = "mute", .send = mute_send, .recv = mute_recv, .test = mute_test, .cancel = mute_cancel, .abort = mute_abort};

static Arena *kept;                   /* what the threads use to the end */

/* The pulse of rank 0 of two; for so long may one be silent. */
static World *begin(double limit)
{
    static const int64_t none[2];
    WorldFiles f;
    World *w;
    assert_int_equal(world_create(&f, 2, none, 0), OK);
    assert_int_equal(world_map(kept, &f, -1, &w), OK);
    world_discard(&f);
    assert_int_equal(pulse_open(kept, &mute, w, 0), OK);
    pulse_pace(w->pulse, limit);
    return w;
}

static int blamed_within(World *w, double seconds)
{
    static const struct timespec nap = {.tv_nsec = 10000000};
    for (double end = clock_seconds() + seconds; clock_seconds() < end && world_aborted(w) < 0;)
        nanosleep(&nap, NULL);
    return world_aborted(w);
}

/* Ranks are started one after the other; once all were there, one that says nothing is lost. */
static void silence_counts_once_all_have_met(void **state)
{
    (void)state;
    World *w = begin(1);
    assert_int_equal(blamed_within(w, 1.5), -1);
    pulse_met(w->pulse);
    assert_int_equal(blamed_within(w, 20), 1);
}

/* What is printed while a rank that is waited for in vain gets the blame. */
static const char *said_of(World *w, int rank, char text[300])
{
    int end[2], err = dup(2);
    assert_int_equal(pipe(end), 0);
    dup2(end[1], 2);
    world_abort(w, rank, "made no progress");
    dup2(err, 2);
    ssize_t n = read(end[0], text, 299);
    assert_true(n > 0);
    text[n] = '\0';
    close(end[0]), close(end[1]), close(err);
    return text;
}

/* Who waits for it may find it first. */
static void silence_is_the_reason(void **state)
{
    (void)state;
    World *w = begin(100);
    char text[300];
    pulse_met(w->pulse);
    assert_int_equal(blamed_within(w, 3), -1);       /* thrice what makes a silence, as the pulse may come late */
    assert_non_null(strstr(said_of(w, 1, text), "rank 1 has not been heard of for "));
}

static int setup(void **state)
{
    (void)state;
    kept = arena_new("test");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(silence_counts_once_all_have_met), cmocka_unit_test(silence_is_the_reason)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
