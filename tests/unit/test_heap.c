/* Ranks that are threads ask at one moment what the heap holds, in processes that never asked before. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/run.h"

enum { THREADS = 8, PROCESSES = 100 };

static atomic_int there;              /* threads that have come */

static void *ask(void *unused)
{
    atomic_fetch_add(&there, 1);
    while (atomic_load(&there) < THREADS)
        ;
    memory_leave_room();
    return unused;
}

static void ask_at_once(void)
{
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, ask, NULL))
            _exit(1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    _exit(0);
}

static void test_first_asked_by_all(void **state)
{
    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        if (pid == 0)
            ask_at_once();
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_asked_by_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
