/*
 * load.c LIBRARY: opens the library as Python and plugins of other libraries do, and prints the milliseconds.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (argc < 2 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == NULL) {
    fprintf(stderr, "%s\n", argc < 2 ? "usage: load LIBRARY" : dlerror());
    return 1;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("%ld\n", (long)(end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000);
  return 0;
}
