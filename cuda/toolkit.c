/* toolkit.c: see toolkit.h. */
#include "toolkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

static int load(const char *path, const char *const *names, void **slots, int count, char *message, size_t bytes) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return -1;
  }
  for (int i = 0; i < count; i++)
    if (!(slots[i] = dlsym(library, names[i]))) {
      snprintf(message, bytes, "%s has no function %s", path, names[i]);
      return -1;
    }
  return 0;
}

static struct {
  int (*Version)(int *, int *);
  const char *(*GetErrorString)(int);
  int (*CreateProgram)(void **, const char *, const char *, int, const char *const *, const char *const *);
  int (*CompileProgram)(void *, int, const char *const *);
  int (*DestroyProgram)(void **);
  int (*GetProgramLogSize)(void *, size_t *);
  int (*GetProgramLog)(void *, char *);
  int (*GetPTXSize)(void *, size_t *);
  int (*GetPTX)(void *, char *);
  int (*GetCUBINSize)(void *, size_t *);
  int (*GetCUBIN)(void *, char *);
} rtc;

int sn_load(const char *path, char *message, size_t bytes) {
  static const char *const names[] = {"nvrtcVersion", "nvrtcGetErrorString", "nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcDestroyProgram", "nvrtcGetProgramLogSize",
                                      "nvrtcGetProgramLog", "nvrtcGetPTXSize", "nvrtcGetPTX", "nvrtcGetCUBINSize", "nvrtcGetCUBIN"};
  return load(path, names, (void **)&rtc, sizeof names / sizeof *names, message, bytes);
}

int sn_version(int *major, int *minor) { return rtc.Version(major, minor); }

const char *sn_error(int result) { return rtc.GetErrorString(result); }

int sn_compile(const char *source, const char *name, const char *const *options, int count, int ptx, char **image, size_t *bytes, char **log) {
  void *program;
  size_t log_bytes = 0;
  *image = *log = NULL;
  int result = rtc.CreateProgram(&program, source, name, 0, NULL, NULL);
  if (result) return result;
  result = rtc.CompileProgram(program, count, options);
  if (!rtc.GetProgramLogSize(program, &log_bytes) && log_bytes > 1 && (*log = malloc(log_bytes)) && rtc.GetProgramLog(program, *log)) {
    free(*log);
    *log = NULL;
  }
  if (!result) result = ptx ? rtc.GetPTXSize(program, bytes) : rtc.GetCUBINSize(program, bytes);
  if (!result && !(*image = malloc(*bytes + 1))) result = 1; /* NVRTC_ERROR_OUT_OF_MEMORY */
  if (!result) result = ptx ? rtc.GetPTX(program, *image) : rtc.GetCUBIN(program, *image);
  if (result) {
    free(*image);
    *image = NULL;
  }
  rtc.DestroyProgram(&program);
  return result;
}

static struct {
  int (*Init)(void);
  const char *(*ErrorString)(int);
  int (*DeviceGetHandleByUUID)(const char *, void **);
  int (*DeviceGetNvLinkState)(void *, unsigned, int *);
  int (*DeviceGetP2PStatus)(void *, void *, int, int *);
  int (*DeviceGetTopologyCommonAncestor)(void *, void *, int *);
} ml;

int sm_load(const char *path, char *message, size_t bytes) {
  static const char *const names[] = {"nvmlInit_v2", "nvmlErrorString", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"};
  if (load(path, names, (void **)&ml, sizeof names / sizeof *names, message, bytes)) return -1;
  int result = ml.Init();
  if (result) {
    snprintf(message, bytes, "nvmlInit: %s", ml.ErrorString(result));
    return -1;
  }
  return 0;
}

const char *sm_error(int result) { return ml.ErrorString(result); }

int sm_device(const char *uuid, void **device) { return ml.DeviceGetHandleByUUID(uuid, device); }

int sm_links(void *device, int *active) {
  *active = 0;
  for (unsigned link = 0; link < 18; link++) {
    int up = 0;
    int result = ml.DeviceGetNvLinkState(device, link, &up);
    if (result == 2 || result == 3) break; /* no such link, or no NVLink at all */
    if (result) return result;
    *active += up != 0;
  }
  return 0;
}

int sm_peer_status(void *device, void *peer, int *status) { return ml.DeviceGetP2PStatus(device, peer, 2 /* NVLink */, status); }

int sm_distance(void *device, void *peer, int *level) { return ml.DeviceGetTopologyCommonAncestor(device, peer, level); }
