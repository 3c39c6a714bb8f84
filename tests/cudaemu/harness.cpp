/* harness.cpp -- runs cases in processes of their own and judges what they say. */
#include "harness.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MS = 120000 };

static void set_environment(const char *text)
{
    std::string words = text ? text : "";
    for (size_t at = 0; at < words.size();) {
        size_t end = words.find(' ', at);
        if (end == std::string::npos)
            end = words.size();
        std::string word = words.substr(at, end - at);
        size_t is = word.find('=');
        setenv(word.substr(0, is).c_str(), word.substr(is + 1).c_str(), 1);
        at = end + 1;
    }
}

static long milliseconds()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What it prints until it ends; ended by force after the limit. */
static std::string read_all(int fd, pid_t child)
{
    std::string text;
    long end = milliseconds() + LIMIT_MS;
    for (;;) {
        pollfd p = {fd, POLLIN, 0};
        char buffer[4096];
        if (poll(&p, 1, 500) > 0) {
            ssize_t n = read(fd, buffer, sizeof buffer);
            if (n <= 0)
                return text;
            text.append(buffer, (size_t)n);
        }
        if (milliseconds() > end) {
            kill(child, SIGKILL);
            return text + "\nstopped: it ran too long\n";
        }
    }
}

static bool run_case(const char *program, const Case &c)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        setenv("TSAN_OPTIONS", "atexit_sleep_ms=0:halt_on_error=0", 1);
        set_environment(c.environment);
        execl("/proc/self/exe", program, c.name, (char *)nullptr);
        _exit(127);
    }
    close(ends[1]);
    std::string text = read_all(ends[0], child);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    bool ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    bool good = c.finds ? !ended_well && text.find(c.finds) != std::string::npos : ended_well && text.empty();
    printf("%s %s\n", good ? "ok" : "not ok", c.name);
    if (!good)
        printf("%s(status %x; it must %s%s)\n", text.c_str(), status, c.finds ? "fail and say " : "succeed in silence", c.finds ? c.finds : "");
    fflush(stdout);
    return good;
}

int run_cases(int argc, char **argv, const Case *cases, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++) {
        if (argc < 2) {
            bad += !run_case(argv[0], cases[i]);
        } else if (!strcmp(argv[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    }
    return argc < 2 ? bad != 0 : 2;
}

cudaStream_t new_stream()
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

float *device_floats(size_t n)
{
    void *p;
    OK(cudaMalloc(&p, n * sizeof(float)));
    return static_cast<float *>(p);
}

float *device_floats(size_t n, const float *values)
{
    float *p = device_floats(n);
    cudaStream_t s = new_stream();
    OK(cudaMemcpyAsync(p, values, n * sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaStreamDestroy(s));
    return p;
}

float *read_floats(const float *device, size_t n, cudaStream_t s)
{
    float *host = static_cast<float *>(malloc(n * sizeof(float)));
    OK(cudaMemcpyAsync(host, device, n * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    return host;
}

void on_ranks(int n, const std::function<void(int)> &f)
{
    std::vector<std::thread> threads;
    for (int r = 0; r < n; r++)
        threads.emplace_back([r, &f]() {
            OK(cudaSetDevice(r));
            f(r);
        });
    for (std::thread &t : threads)
        t.join();
}

bool in_processes(int n, const std::function<void(int)> &f)
{
    std::vector<pid_t> children;
    for (int r = 0; r < n; r++) {
        pid_t child = fork();
        if (child == 0) {
            OK(cudaSetDevice(r));
            f(r);
            _exit(0);
        }
        children.push_back(child);
    }
    bool good = true;
    for (pid_t child : children) {
        int status;
        waitpid(child, &status, 0);
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return good;
}
