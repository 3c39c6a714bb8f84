/* Combine and copy in registers.  A block of four registers an array goes through
 * all inputs before it is written, so every array is read or written once.  Two
 * inputs and one or two outputs, the commonest, have loops of their own because
 * their pointers then stay in registers. */
#include <immintrin.h>
#include <string.h>

#include "kernels/combine.h"
#include "kernels/cpu/cpu.h"

#if defined(__AVX512F__)
enum { WIDTH = 64 };
#define STREAM(p, x) _mm512_stream_si512((void *)(p), (__m512i)(x))
#elif defined(__AVX2__)
enum { WIDTH = 32 };
#define STREAM(p, x) _mm256_stream_si256((void *)(p), (__m256i)(x))
#else
enum { WIDTH = 16 };
#define STREAM(p, x) _mm_stream_si128((void *)(p), (__m128i)(x))
#endif
enum { BLOCK = 4, LINE = 64, PAGE = 4096 };          /* registers; bytes */

/* Bits of a register, and the same from an address of any alignment. */
typedef uint64_t Bits __attribute__((vector_size(WIDTH)));
typedef struct Loose { Bits x; } __attribute__((packed, may_alias)) Loose;

static inline Bits load(const char *p)
{
    return ((const Loose *)p)->x;
}

static inline void store(char *p, Bits x, bool stream)
{
    if (stream)
        STREAM(p, x);
    else
        ((Loose *)p)->x = x;
}

/* `a` where one of its elements is no number; the comparison alone would take b. */
#define MAX_OF(T, a, b)   ((a) > (b) || (a) != (a) ? (a) : (b))
#define SUM_OF(T, a, b)   ((T)((a) + (b)))
#define MAX_BITS(V, a, b) (((Bits)(((V)(a) > (V)(b)) | ((V)(a) != (V)(a))) & (a)) | (~(Bits)(((V)(a) > (V)(b)) | ((V)(a) != (V)(a))) & (b)))
#define SUM_BITS(V, a, b) ((Bits)((V)(a) + (V)(b)))

/* One kernel: T the element, sums of integers being made without sign. */
#define COMBINE(name, T, OP)                                                                                                   \
    typedef T Vec_##name __attribute__((vector_size(WIDTH)));                                                                  \
    static inline __attribute__((always_inline)) int64_t name##_blocks(const Combine *c, int nin, int nout, bool stream)       \
    {                                                                                                                          \
        int64_t i = c->first * (int64_t)sizeof(T), end = c->end * (int64_t)sizeof(T);                                          \
        for (; i + BLOCK * WIDTH <= end; i += BLOCK * WIDTH) {                                                                 \
            Bits x[BLOCK];                                                                                                     \
            for (int b = 0; b < BLOCK; b++)                                                                                    \
                x[b] = load((const char *)c->in[0] + i + b * WIDTH);                                                           \
            for (int k = 1; k < nin; k++)                                                                                      \
                for (int b = 0; b < BLOCK; b++) {                                                                              \
                    Bits y = load((const char *)c->in[k] + i + b * WIDTH);                                                     \
                    x[b] = OP##_BITS(Vec_##name, x[b], y);                                                                     \
                }                                                                                                              \
            for (int o = 0; o < nout; o++)                                                                                     \
                for (int b = 0; b < BLOCK; b++)                                                                                \
                    store((char *)c->out[o] + i + b * WIDTH, x[b], stream);                                                    \
        }                                                                                                                      \
        return i / (int64_t)sizeof(T);                                                                                         \
    }                                                                                                                          \
    static void name(const Combine *c, bool stream)                                                                            \
    {                                                                                                                          \
        int64_t i;                                                                                                             \
        if (stream)                                                                                                            \
            i = name##_blocks(c, c->nin, c->nout, true);                                                                       \
        else if (c->nin == 2 && c->nout == 2)                                                                                  \
            i = name##_blocks(c, 2, 2, false);                                                                                 \
        else if (c->nin == 2 && c->nout == 1)                                                                                  \
            i = name##_blocks(c, 2, 1, false);                                                                                 \
        else                                                                                                                   \
            i = name##_blocks(c, c->nin, c->nout, false);                                                                      \
        for (; i < c->end; i++) {                                                                                              \
            T x = ((const T *)c->in[0])[i];                                                                                    \
            for (int k = 1; k < c->nin; k++) {                                                                                 \
                T y = ((const T *)c->in[k])[i];                                                                                \
                x = OP##_OF(T, x, y);                                                                                          \
            }                                                                                                                  \
            for (int o = 0; o < c->nout; o++)                                                                                  \
                ((T *)c->out[o])[i] = x;                                                                                       \
        }                                                                                                                      \
    }

COMBINE(sum_f32, float, SUM)
COMBINE(sum_f64, double, SUM)
COMBINE(sum_i32, uint32_t, SUM)
COMBINE(sum_i64, uint64_t, SUM)
COMBINE(max_f32, float, MAX)
COMBINE(max_f64, double, MAX)
COMBINE(max_i32, int32_t, MAX)
COMBINE(max_i64, int64_t, MAX)

/* bf16: in f32, in the order of the inputs, and rounded once.  A few cache lines at a
 * time, in loops that the compiler turns into vectors. */
static void combine_bf16(const Combine *c, bool sum)
{
    enum { SOME = 128 };
    float x[SOME];
    for (int64_t i = c->first; i < c->end; i += SOME) {
        int64_t n = c->end - i < SOME ? c->end - i : SOME;
        for (int64_t j = 0; j < n; j++)
            x[j] = bf16_value(((const Bf16 *)c->in[0])[i + j]);
        for (int k = 1; k < c->nin; k++)
            for (int64_t j = 0; j < n; j++) {
                float y = bf16_value(((const Bf16 *)c->in[k])[i + j]);
                x[j] = sum ? x[j] + y : MAX_OF(float, x[j], y);
            }
        for (int o = 0; o < c->nout; o++)
            for (int64_t j = 0; j < n; j++)
                ((Bf16 *)c->out[o])[i + j] = bf16_round(x[j]);
    }
}

static bool on_line(const void *p)
{
    return (uintptr_t)p % LINE == 0;
}

static bool can_stream(const Combine *c)
{
    int64_t at = c->first * dtype_bytes(c->dtype);
    bool can = c->stream;
    for (int o = 0; o < c->nout && can; o++)
        can = on_line((char *)c->out[o] + at);
    return can;
}

#define NAMED_(name, isa) name##_##isa
#define NAMED(name, isa)  NAMED_(name, isa)

void NAMED(combine, ISA)(const Combine *c)
{
    bool stream = can_stream(c), sum = c->op == REDUCE_SUM;
    switch ((int)c->dtype) {
    case DT_bf16: combine_bf16(c, sum); return;
    case DT_f32: (sum ? sum_f32 : max_f32)(c, stream); break;
    case DT_f64: (sum ? sum_f64 : max_f64)(c, stream); break;
    case DT_i32: (sum ? sum_i32 : max_i32)(c, stream); break;
    case DT_i64: (sum ? sum_i64 : max_i64)(c, stream); break;
    }
    if (stream)
        _mm_sfence();                 /* streamed writes are not ordered before a later flag */
}

/* The blocks of a copy; the rest, less than one, is left.  A copy that streams is so large that it
 * waits for memory: it asks for the next page itself, as the processor's own prefetch ends with a
 * small page. */
static inline __attribute__((always_inline)) int64_t copy_blocks(char *to, const char *from, int64_t bytes, bool stream)
{
    int64_t i = 0;
    for (; i + BLOCK * WIDTH <= bytes; i += BLOCK * WIDTH) {
        Bits x[BLOCK];
        for (int ahead = PAGE; stream && ahead < PAGE + BLOCK * WIDTH; ahead += LINE)
            _mm_prefetch(from + i + ahead, _MM_HINT_T0);
        for (int b = 0; b < BLOCK; b++)
            x[b] = load(from + i + b * WIDTH);
        for (int b = 0; b < BLOCK; b++)
            store(to + i + b * WIDTH, x[b], stream);
    }
    return i;
}

static void copy_string(void *to, const void *from, int64_t bytes)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

void NAMED(copy_bytes, ISA)(void *to, const void *from, int64_t bytes, CopyWay way)
{
    int64_t done;
    if (way == COPY_STRING && on_line(to) && on_line(from)) {      /* else it can be slower than plain stores */
        copy_string(to, from, bytes);
        return;
    }
    if (way == COPY_STREAM && on_line(to)) {
        done = copy_blocks(to, from, bytes, true);
        _mm_sfence();
    } else {
        done = copy_blocks(to, from, bytes, false);
    }
    memcpy((char *)to + done, (const char *)from + done, (size_t)(bytes - done));
}
