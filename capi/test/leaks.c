/*
 * leaks.c: communicators, windows, requests and groups made and ended many
 * times leave descriptors and memory as they were.
 *
 * Caches of the allocator and the collector fill first, the more of them the more
 * processors there are; a leak grows for ever. So some batch of rounds must add
 * less than a hundredth of a MiB a round. Under the address sanitizer, which keeps
 * what is freed and finds leaks by itself, any growth will do.
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

#ifdef __SANITIZE_ADDRESS__
static const int64_t kib_a_round = INT32_MAX;
#else
static const int64_t kib_a_round = 10;
#endif

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
  int batches = 10;
  int64_t most = 0;
  for (int batch = 0; batch < batches; batch++) {
    int files = descriptors();
    long memory = resident_kib();
    for (int i = 0; i < rounds; i++)
      once(comm, rank, world, i);
    OK(shunt_barrier(comm, NULL));
    int grown_files = descriptors() - files;
    int64_t grown = resident_kib() - memory;
    if (batch > 0 && grown_files > 4) {
      fprintf(stderr, "after %d rounds: %d more descriptors\n", rounds, grown_files);
      return 1;
    }
    OK(shunt_all_reduce(comm, &grown, &most, 1, SHUNT_DTYPE_INT64, SHUNT_OP_MAX, NULL));
    if (most <= kib_a_round * rounds)
      break;
    if (batch == batches - 1) {
      fprintf(stderr, "the last of %d times %d rounds: %lld KiB more memory\n", batches, rounds, (long long)most);
      return 1;
    }
  }
  OK(shunt_close(comm));
  return 0;
}
