/* harness.h -- the emulator's own tests: cases that must pass, and cases in which it must find something.
 *
 * Each case runs in a process of its own, as most of what is to be found ends the process. */
#ifndef CUDAEMU_HARNESS_H
#define CUDAEMU_HARNESS_H

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

struct Case {
    const char *name;
    void (*run)();
    const char *finds;          /* a part of what the emulator or the sanitizer must say; NULL: nothing, and success */
    const char *environment;    /* "NAME=VALUE NAME=VALUE", or NULL */
};

/* Runs the cases, or the one that argv[1] names; prints 'ok NAME' or 'not ok NAME' for each.  The exit status. */
int run_cases(int argc, char **argv, const Case *cases, int n);
#define RUN_CASES(argc, argv, list) run_cases(argc, argv, list, (int)(sizeof(list) / sizeof *(list)))

/* Ends the case as failed. */
#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);             \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)
#define OK(call)                                                                                \
    do {                                                                                        \
        int status_ = (int)(call);                                                              \
        if (status_) {                                                                          \
            fprintf(stderr, "%s:%d: %s returns %d\n", __FILE__, __LINE__, #call, status_);      \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

cudaStream_t new_stream();
float *device_floats(size_t n);                             /* poisoned */
float *device_floats(size_t n, const float *values);
/* Waits for the stream, then reads. */
float *read_floats(const float *device, size_t n, cudaStream_t s);
/* F(rank) in N threads at once, on devices 0 .. N - 1. */
void on_ranks(int n, const std::function<void(int)> &f);
/* The same in N processes; true if all exit with 0. */
bool in_processes(int n, const std::function<void(int)> &f);

#endif
