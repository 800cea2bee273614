/*
 * memory.h: what hangs on a communicator and goes with it.
 */
#ifndef NC_MEMORY_H
#define NC_MEMORY_H

#include "nc.h"

void nc_forget_ops(ncclComm_t comm);

/* cuda.c: the CUDA driver, by dlopen. */
/* nc_current_device is the device of this thread's context, 0 without one. */
int nc_current_device(void);
/* nc_use_device makes a device this thread's, until nc_leave_device. */
bool nc_use_device(int device);
void nc_leave_device(int device);
/* nc_device_alloc and nc_device_free return 0, or what nc_device_error has a text for. */
int nc_device_alloc(void **memory, size_t size);
int nc_device_free(void *memory);
const char *nc_device_error(int code);

#endif
