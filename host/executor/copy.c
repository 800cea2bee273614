/*
 * copy.c: plain bytes from one place to another. The C library's memmove, at
 * any size: stores that bypass the cache were measured at half its speed and
 * would take from the cache what a peer reads next.
 */
#include <string.h>

#include "engine.h"

void sx_copy(char *dst, const char *src, int64_t bytes) {
  if (dst == src) return;
  memmove(dst, src, (size_t)bytes);
}
