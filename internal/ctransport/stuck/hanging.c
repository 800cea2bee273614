/* hanging.c: a shared object whose constructor does not return: it keeps the loader's lock. */
#include <unistd.h>

__attribute__((constructor)) static void hang(void) {
  for (;;) pause();
}
