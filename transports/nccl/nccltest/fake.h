/* fake.h: what the library of fake.c and Go say to each other. */
#ifndef SHUNT_NCCLTEST_FAKE_H
#define SHUNT_NCCLTEST_FAKE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  char bytes[128];
} fake_id;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} fake_config;

enum { FAKE_ALL_REDUCE, FAKE_REDUCE, FAKE_BROADCAST, FAKE_ALL_GATHER, FAKE_REDUCE_SCATTER, FAKE_SEND, FAKE_RECV };

typedef struct {
  uint64_t send, recv, count;
  int32_t kind, dtype, op, root; /* root: of send and receive the peer */
  uint64_t comm, stream;
} fake_op;

/* Results are NCCL's. */
typedef struct {
  int (*name)(char *id);
  int (*begin)(const char *id, int rank, int world, int max_ctas, uint64_t *comm);
  int (*split)(uint64_t parent, int max_ctas, uint64_t *comm);
  int (*state)(uint64_t comm);
  int (*end)(uint64_t comm, int abort);
  int (*scalar)(uint64_t comm, uint64_t bits, int dtype);
  int (*unscalar)(uint64_t comm, int op);
  int (*run)(const fake_op *ops, int count);
  const char *(*words)(uint64_t comm);
  int (*know)(uint64_t comm, uint64_t at, uint64_t bytes, uint64_t *handle);
  int (*forget)(uint64_t comm, uint64_t handle);
} fake_hooks;

#endif
