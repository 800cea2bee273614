/*
 * ranks.h: the ranks of a test program: all in one thread (ncclCommInitAll), or one, of as many processes.
 *
 *   PROGRAM thread WORLD            one thread, a device for each rank
 *   PROGRAM process WORLD RANK FILE a process for each rank, which meet through a file
 */
#ifndef RANKS_H
#define RANKS_H

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "nccl_gen.h"

enum { MOST = 8 };

struct rank {
  int rank;
  ncclComm_t comm;
  void *stream;
};

static struct rank ranks[MOST]; /* of this process */
static int here, world;         /* how many of them, and of all */
static const char *id_file;

#define CHECK(call)                                                                              \
  do {                                                                                           \
    ncclResult_t checked = (call);                                                               \
    if (checked != ncclSuccess) {                                                                \
      fprintf(stderr, "%s:%d: %s returned %d: %s\n", __FILE__, __LINE__, #call, checked,         \
              ncclGetLastError(NULL));                                                           \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

#define WANT(condition)                                                                  \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "%s:%d: want %s: %s\n", __FILE__, __LINE__, #condition, ncclGetLastError(NULL)); \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

/* exchange_id is rank 0's unique id on every rank, through FILE.NUMBER. */
static ncclUniqueId exchange_id(int rank, int number) {
  ncclUniqueId id;
  char path[512], part[520];
  snprintf(path, sizeof path, "%s.%d", id_file, number);
  snprintf(part, sizeof part, "%s.part", path);
  if (rank == 0) {
    CHECK(ncclGetUniqueId(&id));
    int file = open(part, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (file < 0 || write(file, &id, sizeof id) != sizeof id || close(file) != 0 || rename(part, path) != 0) {
      perror(path);
      exit(1);
    }
    return id;
  }
  for (int tries = 0; tries < 60000; tries++) {
    int file = open(path, O_RDONLY);
    if (file >= 0) {
      ssize_t got = read(file, &id, sizeof id);
      close(file);
      if (got == sizeof id)
        return id;
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  fprintf(stderr, "rank 0 has written no %s within a minute\n", path);
  exit(1);
}

/* start reads the arguments and makes the communicators. */
static void start(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s thread WORLD | process WORLD RANK FILE\n", argv[0]);
    exit(2);
  }
  world = atoi(argv[2]);
  if (strcmp(argv[1], "thread") == 0) {
    ncclComm_t comms[MOST];
    int devices[MOST];
    here = world;
    device_open(world);
    for (int i = 0; i < world; i++)
      devices[i] = i % device_count;
    CHECK(ncclCommInitAll(comms, world, devices));
    for (int i = 0; i < world; i++) {
      device_use(i);
      ranks[i] = (struct rank){i, comms[i], device_stream()};
    }
    return;
  }
  here = 1;
  ranks[0].rank = atoi(argv[3]);
  id_file = argv[4];
  device_open(world);
  device_use(ranks[0].rank);
  ranks[0].stream = device_stream();
  CHECK(ncclCommInitRank(&ranks[0].comm, world, exchange_id(ranks[0].rank, 0), ranks[0].rank));
}

static int device_of(const struct rank *r) { return r->rank; }

static void finish(void) {
  for (int i = 0; i < here; i++) {
    CHECK(ncclCommFinalize(ranks[i].comm));
    CHECK(ncclCommDestroy(ranks[i].comm));
  }
}

#endif
