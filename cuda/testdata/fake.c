/* fake.c: a libcuda for tests of the table: it keeps a stack of contexts per
 * thread, records launches and fails where the test says so. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __thread void *stack[16] = {(void *)0xAA};
static __thread int depth = 0; /* stack[0] is what the application had current */
static int fail_launch;
static int launches;
static unsigned char last_params[1024];
static size_t last_bytes;
static unsigned last_grid;

/* What was put into streams, for the test to read at address 1. */
static char record[4096];
static void note(const char *format, ...) {
  size_t n = strlen(record);
  va_list list;
  va_start(list, format);
  vsnprintf(record + n, sizeof record - n, format, list);
  va_end(list);
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) {
  if (from != 1) return 1;
  memset(to, 0, n);
  strncpy(to, record, n);
  record[0] = 0;
  return 0;
}

int cuInit(unsigned f) { return f; }
int cuDriverGetVersion(int *v) {
  *v = 12080;
  return 0;
}
int cuGetErrorName(int r, const char **n) {
  *n = r == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : r == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : NULL;
  return 0;
}
int cuGetErrorString(int r, const char **n) {
  *n = r == 2 ? "out of memory" : r == 719 ? "unspecified launch failure" : NULL;
  return 0;
}
int cuDeviceGetCount(int *n) {
  *n = 2;
  return 0;
}
int cuDeviceGet(int *d, int o) {
  *d = o;
  return o > 1 ? 101 : 0;
}
int cuDeviceGetName(char *n, int len, int d) {
  strncpy(n, d ? "Fake B" : "Fake A", len);
  return 0;
}
int cuDeviceGetUuid_v2(void *u, int d) {
  for (int i = 0; i < 16; i++) ((unsigned char *)u)[i] = i + d;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *b, int d) {
  *b = (size_t)(80 + d) << 30;
  return 0;
}
int cuDeviceGetPCIBusId(char *b, int len, int d) {
  strncpy(b, "0000:18:00.0", len);
  return 0;
}
int cuDeviceGetAttribute(int *v, int a, int d) {
  if (a == 122) return 1; /* unknown to this driver */
  *v = a;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d) {
  *c = (void *)(uintptr_t)(0x1000 + d);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuCtxPushCurrent_v2(void *c) {
  if (c == (void *)0xBAD) return 201;
  stack[++depth] = c;
  return 0;
}
int cuCtxPopCurrent_v2(void **c) {
  *c = stack[depth--];
  return 0;
}
int cuCtxGetCurrent(void **c) {
  *c = stack[depth];
  return 0;
}
int cuMemAlloc_v2(uint64_t *p, size_t n) {
  if (n > 1u << 20) return 2;
  *p = (uintptr_t)stack[depth]; /* so that the test sees which context was current */
  return 0;
}
int cuModuleLoadData(void **m, const void *image) {
  static uintptr_t modules = 0x300;
  if (!strcmp(image, "broken")) return 2;
  *m = (void *)++modules;
  note("load %s in %p;", (const char *)image, stack[depth]);
  return 0;
}
int cuModuleUnload(void *m) {
  note("unload %p;", m);
  return 0;
}
int cuModuleGetFunction(void **f, void *m, const char *name) {
  *f = (void *)0xF00;
  return strcmp(name, "kernel") ? 500 : 0;
}
int cuFuncSetAttribute(void *f, int a, int v) { return note("attribute %d of %p is %d;", a, f, v), 0; }
int cuFuncGetAttribute(int *v, int a, void *f) {
  *v = 90;
  return 0;
}

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct { /* CUlaunchAttribute */
    int id, pad, value[16];
  } *attributes;
  unsigned count;
} config;
/* 0xF00 is a kernel of a driver that knows all attributes, 0xF01 of one that knows none, 0xF02 of one without
 * domains. */
int cuLaunchKernelEx(const config *c, void *f, void **params, void **extra) {
  const char *dependent = "", *remote = "";
  if ((uintptr_t)f < 0xF00 || (uintptr_t)f > 0xF02) return 400;
  if (f == (void *)0xF01 && c->count) return 801;
  for (unsigned i = 0; i < c->count; i++) {
    int id = c->attributes[i].id, value = c->attributes[i].value[0];
    if (f == (void *)0xF02 && id == 10) return 1;
    if (id == 6 && value == 1) dependent = " dependent";
    else if (id == 10 && value == 1) remote = " remote";
    else return 1;
  }
  note("launch %u on %p in %p%s%s;", c->grid[0], c->stream, stack[depth], dependent, remote);
  if (fail_launch && launches == fail_launch) return 719;
  launches++;
  last_grid = c->grid[0];
  last_bytes = *(size_t *)extra[3];
  memcpy(last_params, extra[1], last_bytes);
  return 0;
}
/* Memory by handle: a chunk at every 4 KiB from 64 KiB to 128 KiB, whose handle is
 * its number; release counts in the log. */
int cuMemRetainAllocationHandle(uint64_t *h, void *p) {
  uintptr_t at = (uintptr_t)p;
  if (at < 0x10000 || at >= 0x20000) return 1;
  *h = at >> 12;
  return 0;
}
int cuMemExportToShareableHandle(void *fd, uint64_t h, int type, unsigned long long flags) {
  if (h == 0x1D) return 2;
  return note("export %llu;", (unsigned long long)h), *(int *)fd = open("/dev/zero", O_RDONLY), 0;
}
int cuMemRelease(uint64_t h) { return note("release %llu;", (unsigned long long)h), 0; }
int cuPointerGetAttribute(void *to, int a, uint64_t p) {
  if (a == 19) return *(uint64_t *)to = p & ~0xFFFull, 0;
  if (a == 18) return *(size_t *)to = 0x1000, 0;
  if (a == 7 && p >= 0x10000 && p < 0x20000) return *(uint64_t *)to = p >> 12, 0;
  if (a == 9) return *(int *)to = 1, 0;
  if (a == 8 || a == 10) return *(unsigned *)to = a == 10, 0; /* whole words, as drivers write */
  if (a == 7 && p == 0x666) return 700; /* a broken context */
  return 1;
}
int cuMemGetAddressRange_v2(uint64_t *p, size_t *n, uint64_t at) { return 1; }
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t n, void *s) {
  return note("copy %zu %llx %llx on %p;", n, (unsigned long long)from, (unsigned long long)to, s), 0;
}
int cuEventRecord(void *e, void *s) { return note("record %p on %p;", e, s), 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned f) { return note("wait %p on %p;", e, s), 0; }
/* Streams 0x20 to 0x2F are in capture 7, 0x30 in one that failed, 0x40 is none. */
int cuStreamGetCaptureInfo_v2(void *s, int *status, uint64_t *id, void **graph, const void ***deps, size_t *n) {
  uintptr_t at = (uintptr_t)s;
  if (at == 0x40) return 400;
  *status = at == 0x30 ? 2 : at >= 0x20 && at < 0x30;
  if (*status == 1) *id = 7, *graph = (void *)0x77;
  return 0;
}
static __thread int mode;
int cuThreadExchangeStreamCaptureMode(int *m) {
  int old = mode;
  mode = *m;
  *m = old;
  return 0;
}
int cuEventQuery(void *e) { return mode == 2 ? 0 : 900; /* as while another thread captures */ }

typedef void (*destructor)(void *);
static destructor destroy;
static void *object;
int cuUserObjectCreate(void **o, void *data, destructor d, unsigned count, unsigned flags) {
  destroy = d;
  object = data;
  *o = data;
  return 0;
}
int cuUserObjectRelease(void *o, unsigned count) {
  destroy(o);
  return 0;
}
int cuGraphRetainUserObject(void *g, void *o, unsigned count, unsigned flags) { return g ? 0 : 1; }
int cuGraphDestroy(void *g) {
  destroy(object);
  return 0;
}
/* for the test */
void *fake_current(void) { return stack[depth]; }
int fake_launches(void) { return launches; }
void fake_fail(int at) { fail_launch = at; }
