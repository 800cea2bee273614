/* toolkit.h: NVRTC and NVML, found by dlsym like the driver; see driver.h. */
#ifndef SHUNT_CUDA_TOOLKIT_H
#define SHUNT_CUDA_TOOLKIT_H

#include <stddef.h>
#include <stdint.h>

/* NVRTC. Results are nvrtcResult, or SC_MISSING. */
int sn_load(const char *path, char *message, size_t bytes);
int sn_version(int *major, int *minor);
const char *sn_error(int result);
/* Compiles source to machine code (an option names sm_…) or PTX. On success
 * *image holds malloc'ed memory; *log always does, if there is one. */
int sn_compile(const char *source, const char *name, const char *const *options, int count, int ptx, char **image, size_t *bytes, char **log);

/* NVML. Results are nvmlReturn_t, or SC_MISSING. */
int sm_load(const char *path, char *message, size_t bytes);
const char *sm_error(int result);
int sm_device(const char *uuid, void **device);
/* How many NVLinks of a device are up; 0 where it has none. */
int sm_links(void *device, int *active);
/* Whether NVLink traffic (status 0) between two devices is possible. */
int sm_peer_status(void *device, void *peer, int *status);
/* nvmlGpuTopologyLevel_t: 0 same board … 50 different CPU sockets. */
int sm_distance(void *device, void *peer, int *level);

#endif
