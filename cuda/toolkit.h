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
int sn_compile(const char *source, const char *name, const char *const *options, int count, int ptx, char **image,
               size_t *bytes, char **log);

/* Fills a table of functions from a library. Those from required on may be missing: their slots are NULL. */
int sk_load(const char *path, const char *const *names, void **slots, int required, int count, char *message,
            size_t bytes);

/* NVML. Results are nvmlReturn_t; functions that the library does not have return SM_MISSING. */
enum { SM_INVALID_ARGUMENT = 2, SM_NOT_SUPPORTED = 3, SM_NOT_FOUND = 6, SM_MISSING = 13 };
enum { SM_TEXT = 96, SM_LINKS = 64, SM_MIG_DEVICES = 16 };

typedef struct {
  uint32_t number, version; /* version is an nvmlNvlinkVersion_t, 0 if unknown */
  int32_t remote;           /* nvmlIntNvLinkDeviceType_t, 255 if unknown */
  uint32_t known;           /* 1: the address below is */
  uint32_t domain, bus, device;
} sm_link;

typedef struct {
  int32_t failed; /* 0, or the result of call */
  const char *call;
  uint32_t index;
  char uuid[SM_TEXT], name[SM_TEXT];
  uint32_t domain, bus, device;
  uint64_t memory;
  int32_t major, minor, mig; /* mig: 1 if it is on */
  int32_t links, mig_devices;
  sm_link link[SM_LINKS];
  char mig_device[SM_MIG_DEVICES][SM_TEXT];
} sm_gpu;

/* What SM_MISSING and other results of the parts of a path become. */
enum { SM_STATUS_UNKNOWN = 6, SM_LEVEL_UNKNOWN = -1 };

int sm_load(const char *path, char *message, size_t bytes);
int sm_open(void); /* as often as sm_close */
int sm_close(void);
const char *sm_error(int result);
int sm_driver(char *version, size_t bytes);
int sm_count(unsigned *count);
int sm_at(unsigned index, void **device);
void sm_describe(void *device, sm_gpu *gpu);
int sm_device(const char *uuid, void **device);
/* nvmlGpuP2PStatus_t for NVLink, reading and writing, and nvmlGpuTopologyLevel_t. */
void sm_path(void *device, void *peer, int *nvlink, int *read, int *write, int *level);

#endif
