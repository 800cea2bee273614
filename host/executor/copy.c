/* copy.c: plain bytes from one place to another. */
#include <string.h>

#include "engine.h"

void sx_copy(char *dst, const char *src, int64_t bytes) {
  if (dst == src) return;
  memmove(dst, src, (size_t)bytes);
}
