/*
 * call.h: how the files of this package call the table of driver.h. Not for
 * anyone else.
 */
#ifndef SHUNT_CUDA_CALL_H
#define SHUNT_CUDA_CALL_H

#include "driver.h"

/* The table. Written once, by sc_load. */
extern sc_table sc_cu __attribute__((visibility("hidden")));
#define cu sc_cu

enum {
#define X(name, symbol, arguments) I_##name,
  SC_FUNCTIONS(X)
#undef X
  I_IpcOpenMemHandle,
  I_COUNT
};

#define NEED(name) \
  if (!cu.name) return SC_MISSING - I_##name

#define TRY(call)              \
  do {                         \
    int result_ = (call);      \
    if (result_) return result_; \
  } while (0)

/* Lets this thread allocate, query and free while some stream of the process is
 * being captured in a mode that forbids that; returns the mode to put back. */
static inline int sc_relax(void) {
  int mode = 2; /* relaxed */
  if (!cu.ThreadExchangeStreamCaptureMode || cu.ThreadExchangeStreamCaptureMode(&mode)) return -1;
  return mode;
}

static inline void sc_unrelax(int mode) {
  if (mode >= 0) cu.ThreadExchangeStreamCaptureMode(&mode);
}

/* Runs body, which sets result, with a context current. */
#define WITH(context, ...)                             \
  do {                                                 \
    NEED(CtxPushCurrent);                              \
    NEED(CtxPopCurrent);                               \
    int result = cu.CtxPushCurrent((void *)(context)); \
    if (result) return result;                         \
    int mode_ = sc_relax();                            \
    do __VA_ARGS__ while (0);                          \
    sc_unrelax(mode_);                                 \
    void *popped_;                                     \
    int pop_ = cu.CtxPopCurrent(&popped_);             \
    return result ? result : pop_;                     \
  } while (0)

/* WITH for one call. */
#define CALL(context, function, call) \
  NEED(function);                     \
  WITH(context, { result = (call); })

#define P(handle) ((void *)(uintptr_t)(handle))

#endif
