/*
 * bad_input.c: a table of wrong calls in a world of one. Each prints one line,
 * "call<TAB>status<TAB>message", which the Go test compares with what it
 * expects; none may crash, hang or succeed. The message of a call on comm is also
 * that of comm.
 */
#include <limits.h>

#include "check.h"

#define TRY(call)                                                                            \
  do {                                                                                       \
    shunt_status try_status = (call);                                                        \
    printf("%s\t%s\t%s\n", #call, shunt_status_string(try_status), shunt_last_error(NULL)); \
    if (strstr(#call, "(comm") != NULL)                                                      \
      CHECK(strcmp(shunt_last_error(comm), shunt_last_error(NULL)) == 0);                    \
    if (try_status == SHUNT_OK)                                                              \
      return 1;                                                                              \
  } while (0)

int main(void) {
  shunt_comm comm, closed, other = NULL;
  shunt_window window, stale, gone;
  shunt_request request = NULL;
  shunt_allocator allocator;
  shunt_allocator_stats stats = {sizeof stats, 0, 0, 0, 0, 0}, unsized_stats = {0, 0, 0, 0, 0, 0};
  shunt_alloc_fn alloc;
  shunt_free_fn dealloc;
  void *base;
  int32_t number;
  size_t bytes;
  char id[SHUNT_UNIQUE_ID_BYTES], text[16];
  float a[64] __attribute__((aligned(64))), b[64];
  int64_t minus[1] = {-1}, one[1] = {1}, huge[1] = {INT64_MAX};
  const int64_t *nowhere = (const int64_t *)(uintptr_t)0x100000000000; /* must not be read */
  shunt_options options = SHUNT_OPTIONS_INIT, none = SHUNT_OPTIONS_INIT, newer = SHUNT_OPTIONS_INIT;
  shunt_operation operation = SHUNT_OPERATION_INIT, unsized = SHUNT_OPERATION_INIT;
  const int32_t f32 = SHUNT_DTYPE_FLOAT32, sum = SHUNT_OP_SUM;
  memset(a, 0, sizeof a);

  OK(shunt_comm_init_env(&comm));
  OK(shunt_split(comm, 0, 0, &closed));
  OK(shunt_window_create(comm, 64, &window, &base));
  OK(shunt_window_create(comm, 64, &stale, &base));
  OK(shunt_window_free(stale));
  OK(shunt_close(closed));

  /* handles */
  TRY(shunt_barrier(NULL, NULL));
  TRY(shunt_barrier(closed, NULL));
  TRY(shunt_barrier((shunt_comm)(void *)a, NULL));
  TRY(shunt_barrier((shunt_comm)(void *)window, NULL));
  TRY(shunt_barrier((shunt_comm)(uintptr_t)UINT64_MAX, NULL));
  TRY(shunt_close(closed));
  TRY(shunt_rank(closed, &number));
  TRY(shunt_world(closed, &number));
  TRY(shunt_split(closed, 0, 0, &other));
  TRY(shunt_shrink(closed, &other));
  TRY(shunt_abort(closed, "because"));
  TRY(shunt_note_refusal(closed, "all_reduce", "because"));
  TRY(shunt_set_timeout(closed, 1000));
  TRY(shunt_set_timeout(comm, 0));
  TRY(shunt_set_timeout(comm, INT64_MIN));
  TRY(shunt_group_start(closed));
  TRY(shunt_start(closed, &operation, &request));
  TRY(shunt_request_wait(NULL));
  TRY(shunt_request_test((shunt_request)(void *)comm, 0, &number));
  TRY(shunt_request_notify(NULL, 1));
  TRY(shunt_window_free(stale));
  TRY(shunt_window_create(closed, 64, &gone, &base));
  TRY(shunt_put(comm, stale, a, 1, f32, 0, 0, NULL));
  TRY(shunt_put(comm, NULL, a, 1, f32, 0, 0, NULL));
  TRY(shunt_signal(comm, NULL, 0, NULL));
  TRY(shunt_wait(comm, stale, 0, 1, NULL));

  TRY(shunt_register(closed, a, sizeof a));
  TRY(shunt_register_symmetric(closed, a, sizeof a));
  TRY(shunt_peer_address(closed, a, 0, &base));
  TRY(shunt_window_at(closed, a, 8192, &gone, &base));
  TRY(shunt_deregister(closed, a));
  TRY(shunt_set_block_limit(closed, 1));
  TRY(shunt_set_block_limit(comm, -1));
  TRY(shunt_set_cancel(closed, &number));
  TRY(shunt_set_cancel(comm, (const int32_t *)8));
  TRY(shunt_set_cancel(comm, (const int32_t *)4097));
  TRY(shunt_continue(comm));
  TRY(shunt_get_async_error(NULL, &number));
  TRY(shunt_get_async_error(closed, &number));
  TRY(shunt_get_async_error((shunt_comm)(void *)window, &number));
  TRY(shunt_records(NULL, text, sizeof text, &bytes));
  TRY(shunt_records(closed, NULL, 0, &bytes));

  /* allocators */
  TRY(shunt_allocator_create(closed, 0, 0, &allocator));
  TRY(shunt_allocator_create(comm, 0, 0, NULL));
  TRY(shunt_allocator_create(comm, 2, 0, &allocator));
  TRY(shunt_allocator_create(comm, 0, -1, &allocator));
  TRY(shunt_allocator_create(comm, SHUNT_ALLOCATOR_SYMMETRIC, 0, &allocator));
  TRY(shunt_allocator_alloc(NULL, 1, NULL, &base));
  TRY(shunt_allocator_alloc((shunt_allocator)(void *)comm, 1, NULL, &base));
  TRY(shunt_allocator_alloc((shunt_allocator)(void *)a, 1, NULL, NULL));
  TRY(shunt_allocator_free((shunt_allocator)(void *)window, a, NULL));
  TRY(shunt_allocator_free(NULL, NULL, NULL));
  TRY(shunt_allocator_record_stream(NULL, a, NULL));
  TRY(shunt_allocator_record_stream(NULL, NULL, NULL));
  TRY(shunt_allocator_reserve(NULL, 1));
  TRY(shunt_allocator_trim(NULL));
  TRY(shunt_allocator_get_stats(NULL, NULL));
  TRY(shunt_allocator_get_stats(NULL, &unsized_stats));
  TRY(shunt_allocator_get_stats(NULL, &stats));
  TRY(shunt_allocator_functions(NULL, &alloc, &dealloc));
  TRY(shunt_allocator_functions(NULL, NULL, &dealloc));
  TRY(shunt_allocator_functions(NULL, &alloc, NULL));
  TRY(shunt_allocator_destroy(NULL));
  TRY(shunt_allocator_destroy((shunt_allocator)(void *)comm));

  /* null pointers */
  TRY(shunt_comm_init(&options, NULL));
  TRY(shunt_rank(comm, NULL));
  TRY(shunt_world(comm, NULL));
  TRY(shunt_split(comm, 0, 0, NULL));
  TRY(shunt_shrink(comm, NULL));
  TRY(shunt_get_unique_id(NULL, 100));
  TRY(shunt_get_unique_id(id, 0));
  TRY(shunt_get_unique_id(id, 5));
  TRY(shunt_run(comm, NULL));
  TRY(shunt_start(comm, NULL, &request));
  TRY(shunt_start(comm, &operation, NULL));
  TRY(shunt_explain(comm, SHUNT_COLL_BARRIER, f32, sum, 0, NULL, 10, NULL));
  TRY(shunt_explain(comm, SHUNT_COLL_BARRIER, f32, sum, 0, NULL, 0, NULL));
  TRY(shunt_get_async_error(comm, NULL));
  TRY(shunt_records(comm, NULL, 10, &bytes));
  TRY(shunt_records(comm, NULL, 0, NULL));
  TRY(shunt_records(comm, text, 0, NULL));
  TRY(shunt_records(comm, NULL, SIZE_MAX, NULL));
  TRY(shunt_window_create(comm, 64, NULL, &base));
  TRY(shunt_window_create(comm, 64, &gone, NULL));
  TRY(shunt_register(comm, NULL, 4));
  TRY(shunt_register_symmetric(comm, NULL, 4));
  TRY(shunt_peer_address(comm, NULL, 0, &base));
  TRY(shunt_peer_address(comm, a, 0, NULL));
  TRY(shunt_window_at(comm, NULL, 8192, &gone, &base));
  TRY(shunt_window_at(comm, a, 8192, NULL, &base));
  TRY(shunt_window_at(comm, a, 8192, &gone, NULL));
  TRY(shunt_deregister(comm, NULL));
  TRY(shunt_all_reduce(comm, NULL, b, 4, f32, sum, NULL));
  TRY(shunt_all_reduce(comm, a, NULL, 4, f32, sum, NULL));
  TRY(shunt_all_gather_v(comm, a, b, NULL, NULL, f32, NULL));
  TRY(shunt_reduce_scatter_v(comm, a, b, NULL, NULL, f32, sum, NULL));
  TRY(shunt_all_to_all_v(comm, a, NULL, NULL, b, one, NULL, f32, NULL));
  TRY(shunt_all_to_all_v(comm, a, one, NULL, b, NULL, NULL, f32, NULL));
  TRY(shunt_all_to_all_v_on_device(NULL, a, 1, one, NULL, b, 1, one, NULL, f32, NULL));
  TRY(shunt_all_to_all_v_on_device(comm, NULL, 0, NULL, NULL, NULL, 0, NULL, NULL, f32, NULL));
  TRY(shunt_gather_v(comm, a, 1, b, NULL, NULL, f32, 0, NULL));
  TRY(shunt_scatter_v(comm, a, NULL, NULL, b, 1, f32, 0, NULL));

  /* numbers */
  TRY(shunt_all_reduce(comm, a, b, -1, f32, sum, NULL));
  TRY(shunt_all_reduce(comm, a, b, INT64_MAX, f32, sum, NULL));
  TRY(shunt_all_reduce(comm, a, b, 4, 99, sum, NULL));
  TRY(shunt_all_reduce(comm, a, b, 4, f32, 77, NULL));
  TRY(shunt_all_reduce(comm, a, b, 4, f32, SHUNT_OP_PREMUL_SUM, NULL));
  TRY(shunt_reduce(comm, a, b, 4, f32, sum, 1, NULL));
  TRY(shunt_reduce(comm, a, b, 4, f32, sum, -1, NULL));
  TRY(shunt_broadcast(comm, a, b, 4, f32, INT32_MAX, NULL));
  TRY(shunt_gather(comm, a, b, 4, f32, 1, NULL));
  TRY(shunt_scatter(comm, a, b, 4, f32, 1, NULL));
  TRY(shunt_send(comm, a, 4, f32, 1, NULL));
  TRY(shunt_send(comm, a, 4, f32, 0, NULL));
  TRY(shunt_recv(comm, b, 4, f32, -7, NULL));
  TRY(shunt_all_gather_v(comm, a, b, minus, NULL, f32, NULL));
  TRY(shunt_all_gather_v(comm, a, b, one, minus, f32, NULL));
  TRY(shunt_all_to_all_v(comm, a, huge, NULL, b, one, NULL, f32, NULL));
  TRY(shunt_all_to_all_v(comm, a, one, huge, b, one, NULL, f32, NULL));
  TRY(shunt_all_to_all_v_on_device(comm, a, 1, one, NULL, b, 1, one, NULL, f32, NULL));
  TRY(shunt_all_to_all_v_on_device(comm, a, -1, nowhere, nowhere, b, INT64_MIN, nowhere, nowhere, f32, NULL));
  TRY(shunt_all_to_all_v_on_device(comm, a, 1, one, NULL, b, 1, one, NULL, 99, NULL));
  TRY(shunt_all_reduce(comm, (char *)a + 1, b, 4, f32, sum, NULL));
  TRY(shunt_all_reduce(comm, a, a + 1, 4, f32, sum, NULL));
  TRY(shunt_split(comm, -2, 0, &other));
  const int32_t outside[1] = {1}, twice[2] = {0, 0};
  TRY(shunt_subset(closed, twice, 1, &other));
  TRY(shunt_subset(comm, NULL, 1, &other));
  TRY(shunt_subset(comm, twice, 0, &other));
  TRY(shunt_subset(comm, twice, 2, &other));
  TRY(shunt_subset(comm, outside, 1, &other));
  TRY(shunt_subset(comm, twice, 1, NULL));
  TRY(shunt_note_refusal(comm, NULL, "because"));
  TRY(shunt_note_refusal(comm, "all_reduce", NULL));
  TRY(shunt_exchange(closed, a, 1, b));
  TRY(shunt_exchange(comm, NULL, 1, b));
  TRY(shunt_exchange(comm, a, 1, NULL));
  TRY(shunt_exchange(comm, a, -1, b));
  TRY(shunt_exchange(comm, a, INT64_MAX, b));
  TRY(shunt_set_log(NULL, NULL, (shunt_log_level)4));
  TRY(shunt_set_log(NULL, NULL, (shunt_log_level)-1));
  TRY(shunt_run_together(NULL, &operation, 1));
  TRY(shunt_run_together(&comm, NULL, 1));
  TRY(shunt_run_together(&comm, &operation, -1));
  TRY(shunt_run_together(&comm, &operation, INT64_MAX));
  TRY(shunt_run_together(&closed, &operation, 1));
  TRY(shunt_window_create(comm, -1, &gone, &base));
  TRY(shunt_register(comm, a, 0));
  TRY(shunt_register(comm, a, INT64_MIN));
  TRY(shunt_register_symmetric(comm, a, 0));
  TRY(shunt_register_symmetric(comm, a, INT64_MIN));
  TRY(shunt_peer_address(comm, a, 0, &base));
  TRY(shunt_peer_address(comm, a, -1, &base));
  TRY(shunt_window_at(comm, a, sizeof a, &gone, &base));
  TRY(shunt_window_at(comm, a + 1, 1 << 20, &gone, &base));
  TRY(shunt_window_at(comm, a, 1 << 20, &gone, &base));
  TRY(shunt_put(comm, window, a, 17, f32, 0, 0, NULL));
  TRY(shunt_put(comm, window, a, 1, f32, 0, INT64_MAX, NULL));
  TRY(shunt_get(comm, window, b, 1, f32, 0, -4, NULL));
  TRY(shunt_get(comm, window, b, 1, f32, 3, 0, NULL));
  operation.collective = 1000;
  TRY(shunt_run(comm, &operation));
  TRY(shunt_explain(comm, 1000, f32, sum, 1, text, sizeof text, NULL));

  operation.counts_on_device = 1;
  TRY(shunt_run(comm, &operation));
  operation.collective = SHUNT_COLL_ALL_REDUCE;
  TRY(shunt_run(comm, &operation));
  operation.collective = SHUNT_COLL_SEND;
  TRY(shunt_start(comm, &operation, &request));
  operation.collective = SHUNT_COLL_ALL_TO_ALL_V;
  operation.send_counts = operation.recv_counts = nowhere;
  TRY(shunt_run(comm, &operation));
  OK(shunt_start(comm, &operation, &request));
  TRY(shunt_request_wait(request));
  operation.counts_on_device = 2;
  TRY(shunt_run(comm, &operation));
  operation.counts_on_device = 0;
  operation.reserved = 1;
  TRY(shunt_start(comm, &operation, &request));
  operation.reserved = 0;
  operation.send_counts = operation.recv_counts = NULL;

  /* structs */
  unsized.struct_size = 0;
  TRY(shunt_run(comm, &unsized));
  none.struct_size = 8;
  TRY(shunt_comm_init(&none, &other));
  none.struct_size = SIZE_MAX;
  TRY(shunt_comm_init(&none, &other));
  struct {
    shunt_options options;
    uint64_t unknown;
  } later = {.options = SHUNT_OPTIONS_INIT, .unknown = 1};
  later.options.struct_size = sizeof later;
  TRY(shunt_comm_init(&later.options, &other));
  newer.flags = 1;
  TRY(shunt_comm_init(&newer, &other));
  options.world = -3;
  TRY(shunt_comm_init(&options, &other));
  options.world = 2;
  options.rank = 2;
  options.id = "tcp://127.0.0.1:1";
  TRY(shunt_comm_init(&options, &other));
  options.rank = 0;
  options.id = "carrier pigeon";
  TRY(shunt_comm_init(&options, &other));
  options.world = 1;
  options.id = NULL;
  options.timeout_ms = -5;
  TRY(shunt_comm_init(&options, &other));
  options.timeout_ms = 0;
  options.max_sms = -1;
  TRY(shunt_comm_init(&options, &other));
  options.max_sms = 0;
  options.cancel = (const int32_t *)8;
  TRY(shunt_comm_init(&options, &other));
  options.cancel = NULL;
  options.reserved = 7;
  TRY(shunt_comm_init(&options, &other));
  options.reserved = 0;
  options.transports = "teleport";
  TRY(shunt_comm_init(&options, &other));
  options.transports = NULL;
  options.memory = SHUNT_MEMORY_CUDA;
  TRY(shunt_comm_init(&options, &other));
  CHECK(other == NULL);

  /* order */
  TRY(shunt_group_end(comm));
  TRY(shunt_group_cancel(comm));
  OK(shunt_group_start(comm));
  OK(shunt_all_to_all_v_on_device(comm, a, 1, nowhere, nowhere, b, 1, nowhere, nowhere, f32, NULL));
  TRY(shunt_group_end(comm));
  OK(shunt_group_start(comm)); /* which looks at no arrays: nothing that it takes has some */
  OK(shunt_gather_v(comm, a, 1, b, nowhere, nowhere, f32, 0, NULL));
  TRY(shunt_group_end(comm));
  OK(shunt_group_start(comm));
  OK(shunt_barrier(comm, NULL));
  OK(shunt_group_cancel(comm));
  OK(shunt_group_start(comm));
  operation.collective = SHUNT_COLL_BARRIER;
  TRY(shunt_start(comm, &operation, &request));
  OK(shunt_barrier(comm, NULL));
  TRY(shunt_group_end(comm));

  /* the communicator has survived it all, and remembers its last error */
  a[0] = 42;
  OK(shunt_all_reduce(comm, a, b, 1, f32, sum, NULL));
  CHECK(b[0] == 42);
  CHECK(strstr(shunt_last_error(comm), "group") != NULL);
  CHECK(strcmp(shunt_last_error(closed), shunt_last_error(NULL)) == 0);
  OK(shunt_get_async_error(comm, &number));
  CHECK(number == SHUNT_OK);
  CHECK(strstr(shunt_last_error(comm), "group") != NULL);
  shunt_comm pair[2] = {comm, NULL};
  shunt_operation sums[2] = {SHUNT_OPERATION_INIT, SHUNT_OPERATION_INIT};
  OK(shunt_split(comm, 0, 0, &pair[1]));
  for (int i = 0; i < 2; i++) {
    sums[i].dtype = f32;
    sums[i].send = sums[i].recv = a;
    sums[i].count = -i;
  }
  TRY(shunt_run_together(pair, sums, 2));
  CHECK(strcmp(shunt_last_error(pair[0]), shunt_last_error(NULL)) == 0);
  CHECK(strcmp(shunt_last_error(pair[1]), shunt_last_error(NULL)) == 0);
  OK(shunt_close(pair[1]));
  OK(shunt_abort(comm, "tired"));
  TRY(shunt_barrier(comm, NULL));
  OK(shunt_get_async_error(comm, &number));
  CHECK(number == SHUNT_ABORTED);
  CHECK(strcmp(shunt_last_error(comm),
               "communicator world on rank 0 has failed: rank 0 aborted: tired; shrink or re-create it") == 0);
  OK(shunt_close(comm));
  TRY(shunt_put(comm, window, a, 1, f32, 0, 0, NULL));
  TRY(shunt_window_free(window));
  return 0;
}
