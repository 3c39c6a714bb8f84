/* The template mechanism: a file names itself in THIS and includes this header,
 * which includes it back once for f32 and once for f64.
 *
 *     #ifndef REAL
 *     #include ...
 *     #define THIS "kernels/ref/norm.c"
 *     #include "kernels/each_real.h"
 *     #else
 *     REF_KERNEL(layernorm) { ... REAL ... }
 *     #endif
 *
 * REAL is the element type, DT_REAL its dtype, SUFFIX its name, and NAME(f) gives
 * a function of the body a name per type. */
#define REAL      float
#define DT_REAL   DT_f32
#define SUFFIX    f32
#define NAME(f)   f##_f32
#include THIS
#undef REAL
#undef DT_REAL
#undef SUFFIX
#undef NAME

#define REAL      double
#define DT_REAL   DT_f64
#define SUFFIX    f64
#define NAME(f)   f##_f64
#include THIS
#undef REAL
#undef DT_REAL
#undef SUFFIX
#undef NAME
