/*
 * leaks.c: communicators, windows, requests and groups made and ended many
 * times leave descriptors and memory as they were.
 */
#include <dirent.h>
#include <unistd.h>

#include "check.h"

static int descriptors(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  CHECK(d != NULL);
  while (readdir(d) != NULL)
    n++;
  closedir(d);
  return n;
}

static long resident_kib(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  CHECK(f != NULL && fscanf(f, "%*d %ld", &pages) == 1);
  fclose(f);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void once(shunt_comm comm, int32_t rank, int32_t world, int i) {
  shunt_comm part;
  shunt_window window;
  shunt_request request;
  shunt_operation operation = SHUNT_OPERATION_INIT;
  void *base;
  double in = 1, out = 0;
  int next = (rank + 1) % world, previous = (rank + world - 1) % world;
  OK(shunt_split(comm, 0, 0, &part));
  OK(shunt_window_create(part, 8192, &window, &base));
  operation.collective = SHUNT_COLL_ALL_REDUCE;
  operation.dtype = SHUNT_DTYPE_FLOAT64;
  operation.send = &in;
  operation.recv = &out;
  operation.count = 1;
  OK(shunt_start(part, &operation, &request));
  OK(shunt_request_wait(request));
  CHECK(out == world);
  OK(shunt_group_start(part));
  OK(shunt_send(part, &in, 1, SHUNT_DTYPE_FLOAT64, next, NULL));
  OK(shunt_recv(part, &out, 1, SHUNT_DTYPE_FLOAT64, previous, NULL));
  OK(shunt_group_end(part));
  /* Half of the windows and requests are left to close. */
  if (i % 2 == 0)
    OK(shunt_window_free(window));
  else
    OK(shunt_start(part, &operation, &request));
  OK(shunt_close(part));
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100;
  shunt_comm comm;
  int32_t rank, world;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  for (int i = 0; i < rounds / 4 + 4; i++) /* caches fill */
    once(comm, rank, world, i);
  OK(shunt_barrier(comm, NULL));
  int files = descriptors();
  long memory = resident_kib();
  for (int i = 0; i < rounds; i++)
    once(comm, rank, world, i);
  OK(shunt_barrier(comm, NULL));
  int grown_files = descriptors() - files;
  long grown_memory = resident_kib() - memory;
  if (grown_files > 4 || grown_memory > 16 * 1024) {
    fprintf(stderr, "after %d rounds: %d more descriptors, %ld KiB more memory\n", rounds, grown_files, grown_memory);
    return 1;
  }
  OK(shunt_close(comm));
  return 0;
}
