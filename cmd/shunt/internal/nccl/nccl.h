/* nccl.h: the calls of NCCL that the benchmark compares with, found at run
 * time. Types and numbers are those of NCCL's own header. */
#ifndef SHUNT_BENCH_NCCL_H
#define SHUNT_BENCH_NCCL_H

#include <stddef.h>
#include <stdint.h>

/* One call. Kinds are those of nccl.go. */
typedef struct bn_operation {
  const void *send;
  void *recv;
  int64_t count;
  int32_t kind, dtype, op, peer;
} bn_operation;

/* Loads the library, once; the message says why not. */
int bn_load(const char *path, char *message, size_t capacity);
/* Makes a CUDA context current on this thread. */
int bn_enter(uint64_t context);
int bn_unique_id(void *id);
int bn_init(void **comm, int world, const void *id, int rank);
int bn_destroy(void *comm);
int bn_version(int *version);
/* Returns whether there is ncclAlltoAll: NCCL 2.28 and newer. */
int bn_has_all_to_all(void);
/* Memory of NCCL's own, registered as a symmetric window. */
int bn_window(void *comm, size_t bytes, void **memory, void **window);
int bn_window_free(void *comm, void *memory, void *window);
/* Several operations are one group. */
int bn_submit(void *comm, void *stream, const bn_operation *operations, int count);
const char *bn_error(int result);

#endif
