/*
 * memory.c [none]: ncclMemAlloc and ncclMemFree in threads that have no context of CUDA's, over driver.c, or without a
 * driver.
 */
#include <pthread.h>

#include "ranks.h"

static void *allocate(void *unused) {
  void *memory;
  CHECK(ncclMemAlloc(&memory, 4096));
  memset(memory, 1, 4096);
  WANT(ncclMemAlloc(&(void *){0}, 1 << 21) == ncclUnhandledCudaError);
  WANT(strstr(ncclGetLastError(NULL), "CUDA_ERROR_OUT_OF_MEMORY") != NULL);
  (void)unused;
  return memory;
}

int main(int argc, char **argv) {
  pthread_t thread;
  void *memory = NULL;
  (void)argv;
  if (argc > 1) {
    WANT(ncclMemAlloc(&memory, 4096) == ncclUnhandledCudaError && memory == NULL);
    WANT(strstr(ncclGetLastError(NULL), "the CUDA driver cannot be loaded") != NULL);
    return 0;
  }
  WANT(pthread_create(&thread, NULL, allocate, NULL) == 0 && pthread_join(thread, &memory) == 0);
  CHECK(ncclMemFree(memory));
  return 0;
}
