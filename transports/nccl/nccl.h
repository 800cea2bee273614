/*
 * nccl.h: NVIDIA's NCCL as this package uses it: types written by hand and a table
 * of functions found by dlsym. No header and no library of NCCL is needed to build.
 */
#ifndef SHUNT_NCCL_H
#define SHUNT_NCCL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "shunt_transport.h"

#define NL_ID_BYTES 128
#define NL_IN_PROGRESS 7 /* ncclInProgress */

typedef struct {
  char bytes[NL_ID_BYTES];
} nl_id; /* ncclUniqueId */

/* ncclConfig_t of NCCL 2.18. Newer libraries copy what size says and default the rest. */
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} nl_config;

/* Functions of the library: X(name, result, prototype of arguments). */
#define NL_FUNCTIONS(X)                                                                                         \
  X(GetVersion, int, (int *))                                                                                   \
  X(GetUniqueId, int, (nl_id *))                                                                                \
  X(GetErrorString, const char *, (int))                                                                        \
  X(GetLastError, const char *, (void *))                                                                       \
  X(CommInitRankConfig, int, (void **, int, nl_id, int, nl_config *))                                           \
  X(CommSplit, int, (void *, int, int, void **, nl_config *))                                                   \
  X(CommGetAsyncError, int, (void *, int *))                                                                    \
  X(CommFinalize, int, (void *))                                                                                \
  X(CommDestroy, int, (void *))                                                                                 \
  X(CommAbort, int, (void *))                                                                                   \
  X(GroupStart, int, (void))                                                                                    \
  X(GroupEnd, int, (void))                                                                                      \
  X(AllReduce, int, (const void *, void *, size_t, int, int, void *, void *))                                   \
  X(Reduce, int, (const void *, void *, size_t, int, int, int, void *, void *))                                 \
  X(Broadcast, int, (const void *, void *, size_t, int, int, void *, void *))                                   \
  X(AllGather, int, (const void *, void *, size_t, int, void *, void *))                                        \
  X(ReduceScatter, int, (const void *, void *, size_t, int, int, void *, void *))                               \
  X(Send, int, (const void *, size_t, int, int, void *, void *))                                                \
  X(Recv, int, (void *, size_t, int, int, void *, void *))                                                      \
  X(RedOpCreatePreMulSum, int, (int *, void *, int, int, void *))                                               \
  X(RedOpDestroy, int, (int, void *))

/* Functions that older versions lack: null there. */
#define NL_NEWER(X)                                                                                             \
  X(CommRegister, int, (void *, void *, size_t, void **)) /* 2.19 */                                            \
  X(CommDeregister, int, (void *, void *))

typedef struct {
#define X(name, result, arguments) result(*name) arguments;
  NL_FUNCTIONS(X)
  NL_NEWER(X)
#undef X
} nl_table;

/* Open the library at a path and find its functions. 0, or -1 and a message. */
int nl_load(const char *path, nl_table *table, char *message, size_t bytes);

/* As ncclGetVersion tells it; -1 if it fails. */
int nl_version(const nl_table *table);

/* The file that the functions come from, or "". */
const char *nl_path(const nl_table *table);

/* A name for a new communicator. */
shunt_status nl_unique_id(const nl_table *table, nl_id *id, shunt_native_report *report);

/* A communicator of NCCL. */
typedef struct nl_comm nl_comm;

/* Begin to make a communicator on the current device, and then what operations go to, as native functions: context is
 * the nl_comm. NCCL goes on in a thread of its own; nl_look tells when each is ready. */
nl_comm *nl_new(const nl_table *table, const void *id, int rank, int world, int max_ctas);
shunt_status nl_begin(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report);
shunt_status nl_split(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report);

/* SHUNT_OK if what was begun is ready and nothing has failed, SHUNT_PENDING while it is
 * being made, else the failure. */
shunt_status nl_look(nl_comm *comm, shunt_native_report *report);

/* Make calls of NCCL with the communicator return, and end its kernels, as a native function. Blocks. May be repeated,
 * and so may nl_destroy. Both need the device's context: where a thread has none, NCCL makes one on device 0 behind
 * them, which holds hundreds of MB there as long as the process lives. */
shunt_status nl_abort(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                      shunt_native_report *report);

/* Let go of a communicator in which nothing runs any more, as a native function. Blocks as long as a graph lives that
 * has captured something of it. What came before nl_abort is let go of already. */
shunt_status nl_destroy(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                        shunt_native_report *report);
void nl_free(nl_comm *comm);

/* Word is 8 bytes of device memory for barriers. */
typedef struct {
  nl_comm *comm;
  uint64_t word;
  int32_t collective, dtype, op, element, world;
} nl_call;

/* One collective, as a native function: context is an nl_call. */
shunt_status nl_run(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                    shunt_native_report *report);

/* Memory of the caller's that NCCL knows. */
typedef struct {
  nl_comm *comm;
  uint64_t address, bytes;
  void *handle;
} nl_memory;

/* Have NCCL know memory, and forget it, as native functions: context is an nl_memory. Both return SHUNT_TIMEOUT if
 * the communicator is busy for a second. What was aborted has forgotten everything: neither waits for it. */
shunt_status nl_register(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                         shunt_native_report *report);
shunt_status nl_deregister(void *context, const int64_t *registers, const void *send, void *recv, void *stream,
                           shunt_native_report *report);

static inline int nl_registers(const nl_table *table) { return table->CommRegister && table->CommDeregister; }

/* The native functions, as Go cannot take their addresses. */
static inline void *nl_begin_function(void) { return (void *)nl_begin; }
static inline void *nl_split_function(void) { return (void *)nl_split; }
static inline void *nl_abort_function(void) { return (void *)nl_abort; }
static inline void *nl_destroy_function(void) { return (void *)nl_destroy; }
static inline void *nl_run_function(void) { return (void *)nl_run; }
static inline void *nl_register_function(void) { return (void *)nl_register; }
static inline void *nl_deregister_function(void) { return (void *)nl_deregister; }

/* x rounded to a dtype of at most 32 bits, ties to even. Returns its bits; for integers truncated. Exported for
 * tests. */
uint64_t nl_round(double x, int dtype);

#endif
