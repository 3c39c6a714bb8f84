/* control.h -- what a test may ask of the emulator, in C: faults, memory, reports. */
#ifndef CUDAEMU_CONTROL_H
#define CUDAEMU_CONTROL_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Faults, as in CUDAEMU_FAIL: "NAME:N=CODE[@DEVICE],...".  The N-th call of the function NAME from now on
 * returns CODE; with the names "kernel", "copy", "gemm" and "collective" the N-th operation that a stream
 * executes fails instead: the first three leave the error CODE on the device, the last one on the communicator.
 * Adds to what is there; NULL removes all.  0 if the text is wrong. */
int cudaemu_fail(const char *faults);

/* Bytes of a device (all devices: -1) that are allocated now, and the most that ever were. */
size_t cudaemu_live_bytes(int device);
size_t cudaemu_peak_bytes(int device);

/* Reports so far; more than one only in a process that is not strict. */
unsigned long cudaemu_reports(void);

#ifdef __cplusplus
}
#endif

#endif
