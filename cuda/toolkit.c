/* toolkit.c: see toolkit.h. */
#include "toolkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

int sk_load(const char *path, const char *const *names, void **slots, int required, int count, char *message,
            size_t bytes) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return -1;
  }
  for (int i = 0; i < count; i++)
    if (!(slots[i] = dlsym(library, names[i])) && i < required) {
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
  static const char *const names[] = {"nvrtcVersion",        "nvrtcGetErrorString", "nvrtcCreateProgram",
                                      "nvrtcCompileProgram", "nvrtcDestroyProgram", "nvrtcGetProgramLogSize",
                                      "nvrtcGetProgramLog",  "nvrtcGetPTXSize",     "nvrtcGetPTX",
                                      "nvrtcGetCUBINSize",   "nvrtcGetCUBIN"};
  enum { count = sizeof names / sizeof *names };
  return sk_load(path, names, (void **)&rtc, count, count, message, bytes);
}

int sn_version(int *major, int *minor) { return rtc.Version(major, minor); }

const char *sn_error(int result) { return rtc.GetErrorString(result); }

int sn_compile(const char *source, const char *name, const char *const *options, int count, int ptx, char **image,
               size_t *bytes, char **log) {
  void *program;
  size_t log_bytes = 0;
  *image = *log = NULL;
  int result = rtc.CreateProgram(&program, source, name, 0, NULL, NULL);
  if (result) return result;
  result = rtc.CompileProgram(program, count, options);
  if (!rtc.GetProgramLogSize(program, &log_bytes) && log_bytes > 1 && (*log = malloc(log_bytes)) &&
      rtc.GetProgramLog(program, *log)) {
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
