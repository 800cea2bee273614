/* submit.c: what one operation puts into streams, in one call; see driver.h. */
#include "call.h"

/* CUlaunchConfig and CUlaunchAttribute. */
typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int programmatic, domain;
  } value;
} launch_attribute;

typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  launch_attribute *attributes;
  unsigned count;
} launch_config;

int sc_launch(sc_handle function, sc_handle stream, const uint32_t grid[3], const uint32_t block[3], uint32_t shared,
              uint32_t flags, const void *params, size_t bytes) {
  launch_attribute attributes[2];
  void *extra[] = {(void *)1, (void *)params, (void *)2, &bytes, (void *)0};
  launch_config config = {
      {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, P(stream), attributes, 0};
  if (flags & SC_LAUNCH_DEPENDENT)
    attributes[config.count++] = (launch_attribute){.id = 6, .value = {.programmatic = 1}}; /* stream serialization */
  if (flags & SC_LAUNCH_REMOTE)
    attributes[config.count++] = (launch_attribute){.id = 10, .value = {.domain = 1}}; /* remote */
  int result = cu.LaunchKernelEx(&config, P(function), NULL, extra);
  /* A driver or device that does not know an attribute, or not under capture: the
   * kernel is as right without. The last goes first. */
  while (config.count && (result == 1 || result == 801 || result == 900)) {
    config.count--;
    result = cu.LaunchKernelEx(&config, P(function), NULL, extra);
  }
  return result;
}

int sc_launch_all(sc_handle context, sc_handle stream, const sc_kernel_launch *launches, int count, int *done) {
  NEED(LaunchKernelEx);
  *done = 0;
  WITH(context, {
    for (int i = 0; i < count && !result; i++) {
      const sc_kernel_launch *l = &launches[i];
      result = sc_launch(l->function, stream, l->grid, l->block, l->shared, l->flags, l->params, l->param_bytes);
      if (!result) ++*done;
    }
  });
}

static int put(const sc_work *w, const unsigned char *params, sc_submitted *s) {
  switch (w->kind) {
  case SC_WORK_LAUNCH:
    NEED(LaunchKernelEx);
    return sc_launch(w->handle, w->stream, w->grid, w->block, w->shared, w->flags, params + w->params, w->param_bytes);
  case SC_WORK_COPY:
    NEED(MemcpyAsync);
    return cu.MemcpyAsync(w->to, w->from, w->bytes, P(w->stream));
  case SC_WORK_RECORD:
    NEED(EventRecord);
    return cu.EventRecord(P(w->handle), P(w->stream));
  case SC_WORK_WAIT:
    NEED(StreamWaitEvent);
    return cu.StreamWaitEvent(P(w->stream), P(w->handle), 0);
  case SC_WORK_CALL: {
    shunt_native_fn call = (shunt_native_fn)(uintptr_t)w->handle;
    s->report.peer = 0;
    s->report.message[0] = 0;
    s->call_status =
        call(P(w->bytes), (const int64_t *)(params + w->params), P(w->from), P(w->to), P(w->stream), &s->report);
    return s->call_status ? SC_CALL_FAILED : 0;
  }
  }
  return 1;
}

int sc_submit(sc_handle context, sc_handle stream, uint64_t id, uint64_t capture, const sc_work *work, int count,
              const unsigned char *params, sc_submitted *s) {
  NEED(StreamGetCaptureInfo);
  NEED(CtxGetCurrent);
  NEED(CtxPushCurrent);
  NEED(CtxPopCurrent);
  s->done = s->call_status = 0;
  s->capture_status = -2;
  s->stream = s->capture = s->graph = 0;
  /* The application's thread usually has this context already. */
  void *current = NULL, *graph = NULL, *popped;
  TRY(cu.CtxGetCurrent(&current));
  int push = current != P(context);
  if (push) TRY(cu.CtxPushCurrent(P(context)));
  int result = cu.StreamGetCaptureInfo(P(stream), &s->capture_status, &s->capture, &graph, NULL, NULL);
  if (result) s->capture_status = -1;
  if (s->capture_status != 1) { /* the driver leaves the rest as it was */
    s->capture = 0;
    graph = NULL;
  }
  s->graph = (uintptr_t)graph;
  if (!s->capture_status && cu.StreamGetId && cu.StreamGetId(P(stream), &s->stream)) s->stream = 0;
  int same = !id || !s->stream || s->stream == id;
  if (s->capture_status >= 0 && s->capture_status != 2 && s->capture == capture && same)
    while (!result && s->done < count) {
      result = put(&work[s->done], params, s);
      if (!result) s->done++;
    }
  if (push) {
    int pop = cu.CtxPopCurrent(&popped);
    if (!result) result = pop;
  }
  return result;
}
