/* Guard: lifetimes enforced by AddressSanitizer. */
#include "runtime/guard.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define GUARDED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUARDED 1
#endif
#endif

#ifdef GUARDED
#include <sanitizer/asan_interface.h>

static char *slot_of(const Rank *r, const Buffer *b, const Call *c)
{
    return rank_part(r, b->part) + b->offset + rank_slot(b, c->slot, c->micro) * b->bytes;
}

/* What lives through the whole program is not made anew by one call. */
static bool always_live(const Program *p, const Buffer *b)
{
    return b->first < 0 || (b->first == 0 && b->last == (int32_t)p->ninstr - 1);
}

void guard_open(const Rank *r)
{
    const Program *p = r->program;
    for (int part = 0; part < 2; part++)
        if (p->map_bytes[part] > 0)
            __asan_poison_memory_region(rank_part(r, (MapPart)part), (size_t)p->map_bytes[part]);
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (always_live(p, &p->buffer[i]))
            __asan_unpoison_memory_region(rank_part(r, p->buffer[i].part) + p->buffer[i].offset,
                                          (size_t)(p->buffer[i].bytes * p->buffer[i].slots));
}

/* Bytes of a buffer that some tensor covers: the rest stays poisoned. */
static int64_t used_bytes(const Program *p, uint32_t buffer)
{
    int64_t used = 0;
    for (uint32_t i = 0; i < p->ntensor; i++)
        if (p->tensor[i].buffer.i == buffer && p->tensor[i].at + tensor_bytes(&p->tensor[i]) > used)
            used = p->tensor[i].at + tensor_bytes(&p->tensor[i]);
    return used;
}

/* Private memory is used by one thread alone. */
bool guard_orders(const Rank *r, uint32_t instr)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (!always_live(p, &p->buffer[i]) && p->buffer[i].part == PART_SHARED &&
            (p->buffer[i].first == (int32_t)instr || p->buffer[i].last == (int32_t)instr))
            return true;
    return false;
}

void guard_before(const Rank *r, uint32_t instr, const Call *c)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (!always_live(p, &p->buffer[i]) && p->buffer[i].first == (int32_t)instr) {
            char *at = slot_of(r, &p->buffer[i], c);
            __asan_unpoison_memory_region(at, (size_t)used_bytes(p, i));
            memset(at, 0xFF, (size_t)used_bytes(p, i));
        }
}

void guard_after(const Rank *r, uint32_t instr, const Call *c)
{
    const Program *p = r->program;
    for (uint32_t i = 0; i < p->nbuffer; i++)
        if (!always_live(p, &p->buffer[i]) && p->buffer[i].last == (int32_t)instr)
            __asan_poison_memory_region(slot_of(r, &p->buffer[i], c), (size_t)p->buffer[i].bytes);
}

void guard_close(const Rank *r)
{
    for (int part = 0; part < 2; part++)
        if (rank_part(r, (MapPart)part) && r->program->map_bytes[part] > 0)
            __asan_unpoison_memory_region(rank_part(r, (MapPart)part), (size_t)r->program->map_bytes[part]);
}

#else

void guard_open(const Rank *r) { (void)r; }
bool guard_orders(const Rank *r, uint32_t instr) { (void)r; (void)instr; return false; }
void guard_before(const Rank *r, uint32_t instr, const Call *c) { (void)r; (void)instr; (void)c; }
void guard_after(const Rank *r, uint32_t instr, const Call *c) { (void)r; (void)instr; (void)c; }
void guard_close(const Rank *r) { (void)r; }

#endif
