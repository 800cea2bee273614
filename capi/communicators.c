/*
 * communicators.c: the calls of shunt.h that are not operations: making,
 * dividing and ending communicators, started operations, windows.
 */
#include "internal.h"

/* A number from Go as the handle that the caller sees. */
#define HANDLE(type, number) ((type)(uintptr_t)(number))

shunt_status shunt_get_unique_id(char *id, size_t capacity) {
  GUARD();
  NEED(NULL, id);
  if (capacity == 0)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_get_unique_id: capacity is 0, want SHUNT_UNIQUE_ID_BYTES");
  id[0] = 0;
  return go_get_unique_id(id, capacity);
}

shunt_status shunt_comm_init(const shunt_options *given, shunt_comm *comm) {
  shunt_options options;
  shunt_status status;
  uint64_t number = 0;
  GUARD();
  NEED(NULL, comm);
  *comm = NULL;
  status = shunt_read_options(given, &options);
  if (status != SHUNT_OK)
    return status;
  shunt_mark_handlers();
  status = go_comm_init(&options, &number);
  *comm = HANDLE(shunt_comm, number);
  return status;
}

shunt_status shunt_comm_init_env(shunt_comm *comm) { return shunt_comm_init(NULL, comm); }

shunt_status shunt_rank(shunt_comm comm, int32_t *rank) {
  GUARD();
  NEED(comm, rank);
  return go_rank(SHUNT_NUMBER(comm), rank);
}

shunt_status shunt_world(shunt_comm comm, int32_t *world) {
  GUARD();
  NEED(comm, world);
  return go_world(SHUNT_NUMBER(comm), world);
}

shunt_status shunt_split(shunt_comm comm, int32_t color, int32_t key, shunt_comm *split) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, split);
  *split = NULL;
  shunt_mark_handlers();
  status = go_split(SHUNT_NUMBER(comm), color, key, &number);
  *split = HANDLE(shunt_comm, number);
  return status;
}

shunt_status shunt_shrink(shunt_comm comm, shunt_comm *shrunk) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, shrunk);
  *shrunk = NULL;
  status = go_shrink(SHUNT_NUMBER(comm), &number);
  *shrunk = HANDLE(shunt_comm, number);
  return status;
}

shunt_status shunt_subset(shunt_comm comm, const int32_t *ranks, int32_t count, shunt_comm *subset) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, subset);
  *subset = NULL;
  NEED_OF_ALL(comm, ranks);
  if (count < 1 || count > 1024)
    return shunt_refuse(comm, "subset", "shunt_subset: %d ranks; want 1 to 1024", (int)count);
  status = go_subset(SHUNT_NUMBER(comm), (int32_t *)(uintptr_t)ranks, count, &number);
  *subset = HANDLE(shunt_comm, number);
  return status;
}

shunt_status shunt_exchange(shunt_comm comm, const void *send, int64_t bytes, void *recv) {
  GUARD();
  if (bytes < 0)
    return shunt_refuse(comm, "exchange", "shunt_exchange: bytes is %lld; want 0 or more", (long long)bytes);
  if (bytes > 0) {
    NEED_OF_ALL(comm, send);
    NEED_OF_ALL(comm, recv);
  }
  return go_exchange(SHUNT_NUMBER(comm), (void *)(uintptr_t)send, bytes, recv);
}

shunt_status shunt_abort(shunt_comm comm, const char *reason) {
  GUARD();
  return go_abort(SHUNT_NUMBER(comm), (char *)(uintptr_t)(reason != NULL ? reason : "no reason given"));
}

shunt_status shunt_set_timeout(shunt_comm comm, int64_t timeout_ms) {
  GUARD();
  return go_set_timeout(SHUNT_NUMBER(comm), timeout_ms);
}

shunt_status shunt_synchronize(shunt_comm comm, void *stream) {
  GUARD();
  return go_synchronize(SHUNT_NUMBER(comm), stream);
}

shunt_status shunt_note_refusal(shunt_comm comm, const char *call, const char *why) {
  GUARD();
  NEED(comm, call);
  NEED(comm, why);
  return go_note_refusal(SHUNT_NUMBER(comm), (char *)(uintptr_t)call, (char *)(uintptr_t)why);
}

shunt_status shunt_close(shunt_comm comm) {
  GUARD();
  return go_close(SHUNT_NUMBER(comm));
}

shunt_status shunt_explain(shunt_comm comm, shunt_collective collective, shunt_dtype dtype, shunt_op op, int64_t count,
                           char *text, size_t capacity, size_t *needed) {
  uint64_t bytes = 0;
  shunt_status status;
  GUARD();
  if (text == NULL && capacity != 0)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT, "shunt_explain: text is NULL and capacity is %zu, want 0 with it",
                      capacity);
  if (text == NULL && needed == NULL)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT, "shunt_explain: text and needed are both NULL, want one of them");
  if (capacity > 0)
    text[0] = 0;
  status = go_explain(SHUNT_NUMBER(comm), collective, dtype, op, count, text, capacity, &bytes);
  if (needed != NULL)
    *needed = (size_t)bytes;
  return status;
}

shunt_status shunt_get_async_error(shunt_comm comm, shunt_status *async_error) {
  GUARD();
  NEED(comm, async_error);
  *async_error = SHUNT_OK;
  return go_get_async_error(SHUNT_NUMBER(comm), async_error);
}

shunt_status shunt_records(shunt_comm comm, char *json, size_t capacity, size_t *bytes) {
  uint64_t needed = 0;
  shunt_status status;
  GUARD();
  if (json == NULL && capacity != 0)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT, "shunt_records: json is NULL and capacity is %zu, want 0 with it",
                      capacity);
  if (capacity == 0 && bytes == NULL)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT, "shunt_records: capacity is 0 and bytes is NULL, want one of them");
  if (capacity > 0)
    json[0] = 0;
  if (bytes != NULL)
    *bytes = 0;
  status = go_records(SHUNT_NUMBER(comm), json, capacity, &needed);
  if (bytes != NULL)
    *bytes = (size_t)needed;
  return status;
}

shunt_status shunt_start(shunt_comm comm, const shunt_operation *given, shunt_request *request) {
  shunt_operation operation;
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, request);
  *request = NULL;
  status = shunt_read_operation(comm, given, &operation);
  if (status != SHUNT_OK)
    return status;
  if (shunt_group_is_open(comm))
    return shunt_refuse(comm, "start", "shunt_start: a group is open on this thread and communicator; end it first");
  status = go_start(SHUNT_NUMBER(comm), &operation, &number);
  *request = HANDLE(shunt_request, number);
  return status;
}

shunt_status shunt_request_test(shunt_request request, int64_t timeout_ms, int32_t *done) {
  GUARD();
  NEED(NULL, done);
  *done = 0;
  if (timeout_ms < 0)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_request_test: timeout_ms is %lld; want 0 or more",
                      (long long)timeout_ms);
  return go_request_test(SHUNT_NUMBER(request), timeout_ms, done);
}

shunt_status shunt_request_notify(shunt_request request, int32_t eventfd) {
  GUARD();
  return go_request_notify(SHUNT_NUMBER(request), eventfd);
}

shunt_status shunt_request_wait(shunt_request request) {
  GUARD();
  return go_request_wait(SHUNT_NUMBER(request));
}

shunt_status shunt_register(shunt_comm comm, const void *memory, int64_t bytes) {
  GUARD();
  NEED_OF_ALL(comm, memory);
  return go_register(SHUNT_NUMBER(comm), (void *)(uintptr_t)memory, bytes);
}

shunt_status shunt_register_symmetric(shunt_comm comm, const void *memory, int64_t bytes) {
  GUARD();
  NEED_OF_ALL(comm, memory);
  return go_register_symmetric(SHUNT_NUMBER(comm), (void *)(uintptr_t)memory, bytes);
}

shunt_status shunt_peer_address(shunt_comm comm, const void *memory, int32_t peer, void **address) {
  GUARD();
  NEED(comm, memory);
  NEED(comm, address);
  *address = NULL;
  return go_peer_address(SHUNT_NUMBER(comm), (void *)(uintptr_t)memory, peer, address);
}

shunt_status shunt_deregister(shunt_comm comm, const void *memory) {
  GUARD();
  NEED(comm, memory);
  return go_deregister(SHUNT_NUMBER(comm), (void *)(uintptr_t)memory);
}

shunt_status shunt_window_create(shunt_comm comm, int64_t bytes, shunt_window *window, void **base) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, window);
  NEED_OF_ALL(comm, base);
  *window = NULL;
  *base = NULL;
  status = go_window_create(SHUNT_NUMBER(comm), bytes, &number, base);
  *window = HANDLE(shunt_window, number);
  return status;
}

shunt_status shunt_window_at(shunt_comm comm, void *memory, int64_t bytes, shunt_window *window, void **base) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED_OF_ALL(comm, memory);
  NEED_OF_ALL(comm, window);
  NEED_OF_ALL(comm, base);
  *window = NULL;
  *base = NULL;
  status = go_window_at(SHUNT_NUMBER(comm), memory, bytes, &number, base);
  *window = HANDLE(shunt_window, number);
  return status;
}

shunt_status shunt_window_free(shunt_window window) {
  GUARD();
  return go_window_free(SHUNT_NUMBER(window));
}
