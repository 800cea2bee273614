/*
 * collectives.c: NCCL's calls as operations of Shunt. Data types, reduction operations and streams have the same
 * values in both.
 */
#include <stdint.h>

#include "nc.h"

/* A literal zeroes what it does not name. */
#define RUN(name, n, ...)                                                                                    \
  do {                                                                                                       \
    if (__builtin_expect(!nc_can_queue(comm), 0))                                                            \
      return nc_reject(comm, name);                                                                          \
    if (__builtin_expect((n) > INT64_MAX, 0))                                                                \
      return nc_fail(comm, ncclInvalidArgument, "%s on rank %d: count %zu overflows", name, comm->rank, (n)); \
    if (__builtin_expect((unsigned)dtype >= NC_DATA_TYPES, 0))                                               \
      return nc_fail(comm, ncclInvalidArgument, "%s on rank %d: data type %d is unknown", name, comm->rank, dtype); \
    shunt_operation operation = {.struct_size = sizeof operation, .dtype = (shunt_dtype)dtype,               \
                                 .count = (int64_t)(n), .stream = stream, __VA_ARGS__};                      \
    return nc_queue(comm, &operation);                                                                       \
  } while (0)

/* RUN with a reduction operation, which may be one of the program's own. */
#define REDUCE(name, n, ...)                                                                                 \
  do {                                                                                                       \
    if (__builtin_expect(!nc_can_queue(comm), 0))                                                            \
      return nc_reject(comm, name);                                                                          \
    shunt_operation reduction = {.op = (shunt_op)op};                                                        \
    ncclResult_t found = ncclSuccess;                                                                        \
    if (__builtin_expect((unsigned)op >= NC_BUILTIN_OPS, 0))                                                 \
      found = nc_find_op(comm, op, dtype, &reduction, name);                                                 \
    if (__builtin_expect(found != ncclSuccess, 0))                                                           \
      return found;                                                                                          \
    RUN(name, n, .op = reduction.op, .scalar = reduction.scalar, __VA_ARGS__);                               \
  } while (0)

ncclResult_t nc_AllReduce(const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                          ncclComm_t comm, cudaStream_t stream) {
  REDUCE("ncclAllReduce", count, .collective = SHUNT_COLL_ALL_REDUCE, .send = send, .recv = recv);
}

ncclResult_t nc_Reduce(const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  REDUCE("ncclReduce", count, .collective = SHUNT_COLL_REDUCE, .send = send, .recv = recv, .root = root);
}

ncclResult_t nc_ReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
                              ncclComm_t comm, cudaStream_t stream) {
  REDUCE("ncclReduceScatter", count, .collective = SHUNT_COLL_REDUCE_SCATTER, .send = send, .recv = recv);
}

ncclResult_t nc_Broadcast(const void *send, void *recv, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                          cudaStream_t stream) {
  RUN("ncclBroadcast", count, .collective = SHUNT_COLL_BROADCAST, .send = send, .recv = recv, .root = root);
}

ncclResult_t nc_Bcast(void *memory, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                      cudaStream_t stream) {
  RUN("ncclBcast", count, .collective = SHUNT_COLL_BROADCAST, .send = memory, .recv = memory, .root = root);
}

ncclResult_t nc_AllGather(const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclComm_t comm,
                          cudaStream_t stream) {
  RUN("ncclAllGather", count, .collective = SHUNT_COLL_ALL_GATHER, .send = send, .recv = recv);
}

ncclResult_t nc_AlltoAll(const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclComm_t comm,
                         cudaStream_t stream) {
  RUN("ncclAlltoAll", count, .collective = SHUNT_COLL_ALL_TO_ALL, .send = send, .recv = recv);
}

ncclResult_t nc_Gather(const void *send, void *recv, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  RUN("ncclGather", count, .collective = SHUNT_COLL_GATHER, .send = send, .recv = recv, .root = root);
}

ncclResult_t nc_Scatter(const void *send, void *recv, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  RUN("ncclScatter", count, .collective = SHUNT_COLL_SCATTER, .send = send, .recv = recv, .root = root);
}

ncclResult_t nc_Send(const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  RUN("ncclSend", count, .collective = SHUNT_COLL_SEND, .send = send, .root = peer);
}

ncclResult_t nc_Recv(void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, cudaStream_t stream) {
  RUN("ncclRecv", count, .collective = SHUNT_COLL_RECV, .recv = recv, .root = peer);
}
