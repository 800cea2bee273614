/*
 * collectives.c: the collectives of shunt.h. Each puts its arguments into a
 * shunt_operation on the stack and crosses into Go once.
 */
#include "internal.h"

static inline shunt_status run(shunt_comm comm, shunt_operation *operation) {
  shunt_status status;
  if (shunt_group_takes(comm, operation, &status))
    return status;
  return go_run(SHUNT_NUMBER(comm), operation);
}

/* A literal zeroes what it does not name. */
#define RUN(...)                                                            \
  do {                                                                      \
    if (shunt_forked())                                                     \
      return SHUNT_FORKED;                                                  \
    shunt_operation operation = {.struct_size = sizeof operation, __VA_ARGS__}; \
    return run(comm, &operation);                                           \
  } while (0)

/* The plain functions have no place for the scalar. */
#define REFUSE_PREMUL_SUM(call)                                                                    \
  do {                                                                                             \
    if (op == SHUNT_OP_PREMUL_SUM && !shunt_forked())                                              \
      return shunt_refuse(comm, call, "shunt_" call ": premul_sum needs a scalar: use shunt_run"); \
  } while (0)

shunt_status shunt_all_reduce(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                              shunt_op op, void *stream) {
  REFUSE_PREMUL_SUM("all_reduce");
  RUN(.collective = SHUNT_COLL_ALL_REDUCE, .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op,
      .stream = stream);
}

shunt_status shunt_reduce(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype, shunt_op op,
                          int32_t root, void *stream) {
  REFUSE_PREMUL_SUM("reduce");
  RUN(.collective = SHUNT_COLL_REDUCE, .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op,
      .root = root, .stream = stream);
}

shunt_status shunt_broadcast(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                             int32_t root, void *stream) {
  RUN(.collective = SHUNT_COLL_BROADCAST, .send = send, .recv = recv, .count = count, .dtype = dtype, .root = root,
      .stream = stream);
}

shunt_status shunt_all_gather(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                              void *stream) {
  RUN(.collective = SHUNT_COLL_ALL_GATHER, .send = send, .recv = recv, .count = count, .dtype = dtype,
      .stream = stream);
}

/* Go knows this rank's count: it is recv_counts[rank]. */
shunt_status shunt_all_gather_v(shunt_comm comm, const void *send, void *recv, const int64_t *recv_counts,
                                const int64_t *recv_displs, shunt_dtype dtype, void *stream) {
  RUN(.collective = SHUNT_COLL_ALL_GATHER_V, .send = send, .recv = recv, .recv_counts = recv_counts,
      .recv_displs = recv_displs, .dtype = dtype, .stream = stream);
}

shunt_status shunt_reduce_scatter(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                  shunt_op op, void *stream) {
  REFUSE_PREMUL_SUM("reduce_scatter");
  RUN(.collective = SHUNT_COLL_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .dtype = dtype, .op = op,
      .stream = stream);
}

shunt_status shunt_reduce_scatter_v(shunt_comm comm, const void *send, void *recv, const int64_t *send_counts,
                                    const int64_t *send_displs, shunt_dtype dtype, shunt_op op, void *stream) {
  REFUSE_PREMUL_SUM("reduce_scatter_v");
  RUN(.collective = SHUNT_COLL_REDUCE_SCATTER_V, .send = send, .recv = recv, .send_counts = send_counts,
      .send_displs = send_displs, .dtype = dtype, .op = op, .stream = stream);
}

shunt_status shunt_all_to_all(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                              void *stream) {
  RUN(.collective = SHUNT_COLL_ALL_TO_ALL, .send = send, .recv = recv, .count = count, .dtype = dtype,
      .stream = stream);
}

shunt_status shunt_all_to_all_v(shunt_comm comm, const void *send, const int64_t *send_counts,
                                const int64_t *send_displs, void *recv, const int64_t *recv_counts,
                                const int64_t *recv_displs, shunt_dtype dtype, void *stream) {
  RUN(.collective = SHUNT_COLL_ALL_TO_ALL_V, .send = send, .send_counts = send_counts, .send_displs = send_displs,
      .recv = recv, .recv_counts = recv_counts, .recv_displs = recv_displs, .dtype = dtype, .stream = stream);
}

shunt_status shunt_all_to_all_v_on_device(shunt_comm comm, const void *send, int64_t send_capacity,
                                          const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                          int64_t recv_capacity, const int64_t *recv_counts,
                                          const int64_t *recv_displs, shunt_dtype dtype, void *stream) {
  RUN(.collective = SHUNT_COLL_ALL_TO_ALL_V, .counts_on_device = 1, .send = send, .send_capacity = send_capacity,
      .send_counts = send_counts, .send_displs = send_displs, .recv = recv, .recv_capacity = recv_capacity,
      .recv_counts = recv_counts, .recv_displs = recv_displs, .dtype = dtype, .stream = stream);
}

shunt_status shunt_gather(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                          int32_t root, void *stream) {
  RUN(.collective = SHUNT_COLL_GATHER, .send = send, .recv = recv, .count = count, .dtype = dtype, .root = root,
      .stream = stream);
}

shunt_status shunt_gather_v(shunt_comm comm, const void *send, int64_t count, void *recv, const int64_t *recv_counts,
                            const int64_t *recv_displs, shunt_dtype dtype, int32_t root, void *stream) {
  RUN(.collective = SHUNT_COLL_GATHER_V, .send = send, .count = count, .recv = recv, .recv_counts = recv_counts,
      .recv_displs = recv_displs, .dtype = dtype, .root = root, .stream = stream);
}

shunt_status shunt_scatter(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                           int32_t root, void *stream) {
  RUN(.collective = SHUNT_COLL_SCATTER, .send = send, .recv = recv, .count = count, .dtype = dtype, .root = root,
      .stream = stream);
}

shunt_status shunt_scatter_v(shunt_comm comm, const void *send, const int64_t *send_counts, const int64_t *send_displs,
                             void *recv, int64_t count, shunt_dtype dtype, int32_t root, void *stream) {
  RUN(.collective = SHUNT_COLL_SCATTER_V, .send = send, .send_counts = send_counts, .send_displs = send_displs,
      .recv = recv, .count = count, .dtype = dtype, .root = root, .stream = stream);
}

shunt_status shunt_send(shunt_comm comm, const void *send, int64_t count, shunt_dtype dtype, int32_t peer,
                        void *stream) {
  RUN(.collective = SHUNT_COLL_SEND, .send = send, .count = count, .dtype = dtype, .root = peer, .stream = stream);
}

shunt_status shunt_recv(shunt_comm comm, void *recv, int64_t count, shunt_dtype dtype, int32_t peer, void *stream) {
  RUN(.collective = SHUNT_COLL_RECV, .recv = recv, .count = count, .dtype = dtype, .root = peer, .stream = stream);
}

shunt_status shunt_barrier(shunt_comm comm, void *stream) {
  RUN(.collective = SHUNT_COLL_BARRIER, .stream = stream);
}

shunt_status shunt_put(shunt_comm comm, shunt_window window, const void *send, int64_t count, shunt_dtype dtype,
                       int32_t peer, int64_t offset, void *stream) {
  RUN(.collective = SHUNT_COLL_PUT, .window = window, .send = send, .count = count, .dtype = dtype, .root = peer,
      .offset = offset, .stream = stream);
}

shunt_status shunt_get(shunt_comm comm, shunt_window window, void *recv, int64_t count, shunt_dtype dtype, int32_t peer,
                       int64_t offset, void *stream) {
  RUN(.collective = SHUNT_COLL_GET, .window = window, .recv = recv, .count = count, .dtype = dtype, .root = peer,
      .offset = offset, .stream = stream);
}

shunt_status shunt_signal(shunt_comm comm, shunt_window window, int32_t peer, void *stream) {
  RUN(.collective = SHUNT_COLL_SIGNAL, .window = window, .root = peer, .stream = stream);
}

shunt_status shunt_wait(shunt_comm comm, shunt_window window, int32_t peer, int64_t times, void *stream) {
  RUN(.collective = SHUNT_COLL_WAIT, .window = window, .root = peer, .offset = times, .stream = stream);
}

shunt_status shunt_run(shunt_comm comm, const shunt_operation *given) {
  shunt_operation operation;
  shunt_status status;
  if (shunt_forked())
    return SHUNT_FORKED;
  status = shunt_read_operation(comm, given, &operation);
  if (status != SHUNT_OK)
    return status;
  return run(comm, &operation);
}
