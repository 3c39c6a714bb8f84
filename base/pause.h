#ifndef BASE_PAUSE_H
#define BASE_PAUSE_H
/* Pause: one turn of a loop that spins until another thread has done something. */

static inline void pause_once(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
