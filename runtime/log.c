/* Log: JSON lines for machines, a status line for people on a terminal. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/text.h"
#include "runtime/runtime.h"

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static Status cannot_write(const char *path)
{
    fprintf(stderr, "error: cannot write the log '%s': %s\n", path, strerror(errno));
    return ERR_IO;
}

/* ---- the log of a run that goes on ---- */

/* Whether a line of n bytes stands.  One of ours that was cut off in the middle does
 * not, nor one of a step after the checkpoint's, which is taken again. */
static bool stands(const char *line, size_t n, int64_t done)
{
    static const char start[] = "{\"step\": ";
    size_t known = n < strlen(start) ? n : strlen(start);
    if (strncmp(line, start, known) != 0 || n == 0)
        return true;
    return line[n] == '\n' && (known < strlen(start) || strtoll(line + known, NULL, 10) <= done);
}

/* The lines that stand; says how many do not. */
static Text lines_left(Arena *a, const char *text, int64_t done, int64_t *removed)
{
    Text out = text_new(a);
    *removed = 0;
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (!stands(text, n, done)) {
            ++*removed;
            continue;
        }
        text_puts(&out, text, n);
        text_puts(&out, "\n", 1);
    }
    return out;
}

static Status cut_log(Arena *a, const char *path, int64_t done)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return OK;
    size_t bytes;
    int64_t removed = 0;
    const char *text = read_file(a, path, &bytes);
    if (!text)
        return cannot_write(path);
    Text left = lines_left(a, text, done, &removed);
    if (left.n == bytes || strlen(text) != bytes)    /* zero bytes: it is no log of ours */
        return OK;
    Writer w;
    TRY(writer_open(a, &w, path));
    writer_put(&w, left.s, left.n);
    TRY(writer_close(&w));
    if (removed)
        fprintf(stderr, "note: removed from the log '%s' %lld line%s after step %lld, from where this run goes on\n", path,
                (long long)removed, removed == 1 ? "" : "s", (long long)done);
    return OK;
}

/* ---- writing ---- */

Status log_open(Arena *a, Log *l, const char *path, bool add, int64_t first, int64_t steps)
{
    *l = (Log){.terminal = isatty(STDERR_FILENO), .first = first, .steps = steps, .started = seconds_now()};
    if (!path)
        return OK;
    bool standard = strcmp(path, "-") == 0;
    l->path = path;
    if (add && !standard)
        TRY(cut_log(a, path, first));
    l->file = standard ? stdout : fopen(path, add ? "a" : "w");
    if (!l->file)
        return cannot_write(path);
    setvbuf(l->file, l->buffer, _IOFBF, sizeof l->buffer);
    return OK;
}

/* A line that did not reach the file is a failure now, not at the end, and is said once. */
static Status written(Log *l)
{
    if (!l->failed && fflush(l->file) == 0 && !ferror(l->file))
        return OK;
    Status s = l->failed ? ERR_IO : cannot_write(l->path);
    l->failed = true;
    return s;
}

/* One that is longer than the terminal is wide would leave its head behind whenever the next comes. */
static int room_of_line(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : INT_MAX;
}

static void status_line(const Log *l, const StepReport *s)
{
    double rate = (seconds_now() - l->started) / (double)(s->step - l->first);
    long left = (long)(rate * (double)(l->steps - s->step));
    char line[200 + sizeof(LossText)];
    OneLossText loss;
    LossText parts;
    snprintf(line, sizeof line, "step %lld/%lld  loss %s  %.0f %s/s  mfu %.1f %%  eta %ld:%02ld%s   ", (long long)s->step, (long long)l->steps, loss_text(&loss, s->loss),
             (double)s->tokens / s->seconds, s->unit, 100 * s->mfu, left / 60, left % 60, losses_text(&parts, &s->parts));
    fprintf(stderr, "\r%.*s", room_of_line(), line);
}

/* A key of its own, and nothing where the loss is one by itself. */
static void put_parts(FILE *f, const char *key, const LossParts *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        fprintf(f, "%s\"%s\": %.17g", i ? ", " : key, l->of[i].name, l->value[i]);
    if (l->n > 0)
        fputc('}', f);
}

Status log_step(Log *l, const StepReport *s)
{
    if (l->terminal)
        status_line(l, s);
    if (!l->file)
        return OK;
    fprintf(l->file, "{\"step\": %lld, \"loss\": %.17g", (long long)s->step, s->loss);
    put_parts(l->file, ", \"losses\": {", &s->parts);
    fprintf(l->file, ", \"grad_norm\": %.17g, \"lr\": %.17g, \"tokens\": %lld, \"seconds\": %.9g, \"tokens_per_s\": %.6g, \"mfu\": %.6g}\n", s->norm, s->lr,
            (long long)s->tokens, s->seconds, (double)s->tokens / s->seconds, s->mfu);
    return written(l);
}

static void clear_line(const Log *l)
{
    if (l->terminal)
        fprintf(stderr, "\r\033[K");
}

void log_note(Log *l, const char *text)
{
    if (l->silent)
        return;
    clear_line(l);
    fprintf(stderr, "%s\n", text);
}

Status log_eval(Log *l, int64_t step, double loss, const LossParts *parts)
{
    OneLossText one;
    LossText text;
    if (l->silent)
        return OK;
    clear_line(l);
    fprintf(stderr, "step %lld: held-out loss %s%s\n", (long long)step, loss_text(&one, loss), losses_text(&text, parts));
    if (!l->file)
        return OK;
    fprintf(l->file, "{\"step\": %lld, \"eval_loss\": %.17g", (long long)step, loss);
    put_parts(l->file, ", \"eval_losses\": {", parts);
    fputs("}\n", l->file);
    return written(l);
}

Status log_close(Log *l)
{
    clear_line(l);
    Status s = OK;
    if (l->file) {
        s = written(l);
        if (l->file == stdout)
            setvbuf(stdout, NULL, _IOLBF, 0);
        else if (fclose(l->file) != 0 && s == OK)
            s = cannot_write(l->path);
    }
    l->file = NULL;
    return s;
}
