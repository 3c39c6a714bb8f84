#ifndef KERNELS_FORMS_H
#define KERNELS_FORMS_H
/* Forms: which of its forms an instruction has on a CPU, by the lists of kernels alone, so that who has no kernels
 * may ask too. */
#include "kernels/kernel.h"

typedef enum Form { FORM_NONE, FORM_PLAIN, FORM_FAST } Form;         /* none: nothing computes it in its types */

/* Of an op whose operands have a type, and of an instruction, by the types of its operands; *type: what it computes in. */
Form form_find(OpKind, DType type, Isa);
Form form_of(const Instr *, const Program *, Isa, DType *type);

/* "conv2d, attention with a bias": what of some programs (NULL: none) runs in its plain form, where an instruction has
 * enough to do that it is felt; "": nothing does. */
const char *forms_plain(Arena *, const Program *const *, uint32_t n, Isa);

#endif
