/*
 * log.c: the program's function for log lines; log.go has the queue before it.
 */
#include "internal.h"

/* Whether this thread is inside that function. */
static __thread int inside;

void shunt_call_log(shunt_log_function function, void *context, int32_t level, const char *text) {
  inside = 1;
  function(context, (shunt_log_level)level, text);
  inside = 0;
}

shunt_status shunt_set_log(shunt_log_function function, void *context, shunt_log_level level) {
  if (shunt_forked())
    return SHUNT_FORKED;
  if (inside)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT,
                      "shunt_set_log: it was called by the function for log lines, for which it waits");
  if ((uint32_t)level > SHUNT_LOG_ERROR)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT,
                      "shunt_set_log: level is %d; want SHUNT_LOG_DEBUG to SHUNT_LOG_ERROR", (int)level);
  return go_set_log(function, context, (int32_t)level);
}
