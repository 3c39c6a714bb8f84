/* Tokens: files that are one long sequence of token ids.
 *
 *   llm.c     256 int32 of header: magic, version, number of tokens, zeros; then the
 *             tokens.  Magic 20240520 with version 1 has uint16, magic 20240801 with
 *             version 7 has uint32 (karpathy/llm.c, dev/data/data_common.py).
 *   nanoGPT   uint16 and nothing else, named *.bin (karpathy/nanoGPT, data/.../prepare.py).
 *   raw       uint16 or uint32 and nothing else, when the SPEC says FILE:u16 or FILE:u32.
 *   bytes     any other file, or FILE:bytes: each byte is a token. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "runtime/data.h"

enum { HEADER_INTS = 256, HEADER_BYTES = 4 * HEADER_INTS };

typedef struct Known { uint32_t magic, version; Form form; int width; } Known;
static const Known known[] = {{20240520, 1, FORM_u16, 2}, {20240801, 7, FORM_u32, 4}};
enum { NKNOWN = sizeof known / sizeof *known };

typedef struct Suffix { const char *text; Form form; int width; } Suffix;
static const Suffix suffixes[] = {{":u16", FORM_u16, 2}, {":u32", FORM_u32, 4}, {":bytes", FORM_u8, 1}};
enum { NSUFFIXES = sizeof suffixes / sizeof *suffixes };

/* The start of a file and its size. */
typedef struct Head { uint32_t word[HEADER_INTS]; int64_t got, size; } Head;

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static Status read_head(const char *path, Head *h)
{
    struct stat st;
    *h = (Head){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return file_unopened("open", path, errno);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        fprintf(stderr, "error: data '%s': not a regular file; samples are read in any order\n", path);
        return ERR_REJECT;
    }
    h->size = st.st_size;
    h->got = pread(fd, h->word, HEADER_BYTES, 0);
    int reason = errno;
    close(fd);
    return h->got < 0 ? file_unopened("read", path, reason) : OK;
}

static uint32_t swapped(uint32_t v)
{
    return v >> 24 | (v >> 8 & 0xFF00) | (v << 8 & 0xFF0000) | v << 24;
}

/* A header of zeros but for its first words, as no sequence of tokens begins. */
static bool looks_like_header(const Head *h)
{
    for (int i = 3; i < HEADER_INTS; i++)
        if (h->word[i] != 0)
            return false;
    return h->got == HEADER_BYTES && (h->word[0] != 0 || h->word[2] != 0);
}

/* As a safetensors file begins: the length of a header that is in the file, then the header,
 * an object.  No text does: its first 8 bytes are a number far too large. */
static bool looks_like_tensors(const Head *h)
{
    int64_t header;
    memcpy(&header, h->word, sizeof header);
    return h->got > 8 && header > 0 && header <= h->size - 8 && ((const char *)h->word)[8] == '{';
}

static Status wrong(const char *path, const char *what, long long found, long long expected)
{
    fprintf(stderr, "error: data file '%s': %s: found %lld, expected %lld\n", path, what, found, expected);
    return ERR_REJECT;
}

static Status read_llmc(const char *path, const Head *h, const Known *k, Tokens *out)
{
    if (h->got < HEADER_BYTES)
        return wrong(path, "an llm.c file cut short in its header, bytes", h->size, HEADER_BYTES);
    if (h->word[1] != k->version)
        return wrong(path, "an llm.c file of another version", h->word[1], k->version);
    int64_t expected = HEADER_BYTES + (int64_t)h->word[2] * k->width;
    if (h->size != expected) {
        fprintf(stderr, "error: data file '%s': its header promises %lld tokens of %d bytes, so %lld bytes in all, but it has %lld\n",
                path, (long long)h->word[2], k->width, (long long)expected, (long long)h->size);
        return ERR_REJECT;
    }
    *out = (Tokens){path, k->form, k->width, HEADER_BYTES, h->word[2]};
    return OK;
}

static Status read_raw(const char *path, const Head *h, Form form, int width, Tokens *out)
{
    if (h->size % width) {
        fprintf(stderr, "error: data file '%s': tokens of %d bytes, but it has %lld bytes: %lld too many, or it was cut short\n", path,
                width, (long long)h->size, (long long)(h->size % width));
        return ERR_REJECT;
    }
    *out = (Tokens){path, form, width, 0, h->size / width};
    return OK;
}

/* The SPEC said what the tokens are. */
static Status read_as(const char *path, const Head *h, const Suffix *s, Tokens *out)
{
    for (int i = 0; i < NKNOWN && h->got >= 4 && s->width > 1; i++)
        if (h->word[0] == known[i].magic) {
            fprintf(stderr, "error: data file '%s' is an llm.c file, which says itself what it holds: leave away '%s'\n", path, s->text);
            return ERR_REJECT;
        }
    return read_raw(path, h, s->form, s->width, out);
}

static Status read_guessed(const char *path, const Head *h, Tokens *out)
{
    if (looks_like_tensors(h)) {
        fprintf(stderr, "error: data file '%s' is a safetensors file: give each input its tensor of it, as INPUT=%s; '%s:bytes' would take each "
                "byte of it for a token\n", path, path, path);
        return ERR_REJECT;
    }
    for (int i = 0; i < NKNOWN && h->got >= 4; i++) {
        if (h->word[0] == known[i].magic)
            return read_llmc(path, h, &known[i], out);
        if (h->word[0] == swapped(known[i].magic))
            return wrong(path, "an llm.c file of the other byte order, magic", h->word[0], known[i].magic);
    }
    if (!ends_with(path, ".bin"))
        return read_raw(path, h, FORM_u8, 1, out);
    if (looks_like_header(h))
        return wrong(path, "it begins like an llm.c file, with an unknown magic", h->word[0], known[0].magic);
    return read_raw(path, h, FORM_u16, 2, out);
}

/* What the SPEC says its tokens are; NULL: nothing. */
static const Suffix *suffix_of(const char *spec)
{
    for (int i = 0; i < NSUFFIXES; i++)
        if (ends_with(spec, suffixes[i].text))
            return &suffixes[i];
    return NULL;
}

const char *tokens_path(Arena *a, const char *spec)
{
    const Suffix *s = suffix_of(spec);
    return s ? arena_strndup(a, spec, strlen(spec) - strlen(s->text)) : spec;
}

Status tokens_open(Arena *a, const char *spec, Tokens *out)
{
    Head h;
    const char *path = tokens_path(a, spec);
    const Suffix *s = suffix_of(spec);
    TRY(read_head(path, &h));
    return s ? read_as(path, &h, s, out) : read_guessed(path, &h, out);
}
