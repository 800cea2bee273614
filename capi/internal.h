/*
 * internal.h: what the C files of libshunt share, and the calls into Go.
 *
 * Every function of shunt.h is a C function here, so that the check for a
 * forked child comes before any Go code. Those that need Go cross over once,
 * through a go_* function; handles cross as numbers.
 */
#ifndef SHUNT_CAPI_INTERNAL_H
#define SHUNT_CAPI_INTERNAL_H

#include "shunt.h"

/* guard.c: whether this process is the one that loaded the library. The word
 * is wiped by the kernel in every child that does not share our memory. */
extern volatile const uint64_t *shunt_guard_word;
#define SHUNT_GUARD_ALIVE UINT64_C(0x6576696c61746e75)

static inline int shunt_forked(void) {
  return __builtin_expect(*shunt_guard_word != SHUNT_GUARD_ALIVE, 0);
}

/* load.c: the Go side has been initialized. */
void shunt_is_up(int32_t state);

/* load.c: the file that this library was loaded from, or NULL. */
const char *shunt_file(void);

/* signals.c: sets SA_ONSTACK on the handlers that lack it. */
void shunt_mark_handlers(void);

/* log.c: hands a line to the program's function. */
void shunt_call_log(shunt_log_function function, void *context, int32_t level, const char *text);

/* message.c: the calling thread's message; shunt_fail's is also that of comm, which may be NULL or no communicator. */
void shunt_set_message(const char *text, size_t bytes);
shunt_status shunt_fail(shunt_comm comm, shunt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* message.c: shunt_fail of a call, such as all_reduce, that other ranks may wait for: errors of theirs say why. */
shunt_status shunt_refuse(shunt_comm comm, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* group.c: 1 if the operation was queued in an open group of this thread. */
int shunt_group_takes(shunt_comm comm, const shunt_operation *operation, shunt_status *status);
int shunt_group_is_open(shunt_comm comm);

/* pending.c: notes what the running call leaves pending; 0: no room. */
int shunt_keep_pending(uint64_t comm, uint64_t request);

/* structs.c: a caller's struct of any version as one of ours. */
shunt_status shunt_read_options(const shunt_options *given, shunt_options *options);
shunt_status shunt_read_operation(shunt_comm comm, const shunt_operation *given, shunt_operation *operation);

/* A handle as the number that the table of handles in Go knows. */
#define SHUNT_NUMBER(handle) ((uint64_t)(uintptr_t)(handle))

/* The Go side: one file of Go for each, see the export of the same name. */
extern int32_t go_run(uint64_t comm, shunt_operation *operation);
extern int32_t go_run_group(uint64_t comm, shunt_operation *operations, int64_t count);
extern int32_t go_run_together(uint64_t *comms, shunt_operation *operations, int64_t count);
extern int32_t go_synchronize(uint64_t comm, void *stream);
extern int32_t go_world(uint64_t comm, int32_t *world);
extern int32_t go_start(uint64_t comm, shunt_operation *operation, uint64_t *request);
extern int32_t go_request_test(uint64_t request, int64_t timeout_ms, int32_t *done);
extern int32_t go_request_notify(uint64_t request, int32_t eventfd);
extern int32_t go_request_wait(uint64_t request);
extern int32_t go_set_block_limit(uint64_t comm, int64_t block_limit_ms);
extern int32_t go_set_cancel(uint64_t comm, int32_t *cancel);
extern int32_t go_continue(uint64_t request);
extern int32_t go_get_unique_id(char *id, uint64_t capacity);
extern int32_t go_comm_init(shunt_options *options, uint64_t *comm);
extern int32_t go_rank(uint64_t comm, int32_t *rank);
extern int32_t go_split(uint64_t comm, int32_t color, int32_t key, uint64_t *split);
extern int32_t go_shrink(uint64_t comm, uint64_t *shrunk);
extern int32_t go_set_log(shunt_log_function function, void *context, int32_t level);
extern int32_t go_exchange(uint64_t comm, void *send, int64_t bytes, void *recv);
extern int32_t go_subset(uint64_t comm, int32_t *ranks, int32_t count, uint64_t *subset);
extern int32_t go_abort(uint64_t comm, char *reason);
extern int32_t go_set_timeout(uint64_t comm, int64_t timeout_ms);
extern int32_t go_note_refusal(uint64_t comm, char *call, char *why);
extern int32_t go_close(uint64_t comm);
extern int32_t go_explain(uint64_t comm, uint32_t collective, uint32_t dtype, uint32_t op, int64_t count, char *text,
                          uint64_t capacity, uint64_t *needed);
extern int32_t go_get_async_error(uint64_t comm, int32_t *async_error);
extern int32_t go_records(uint64_t comm, char *json, uint64_t capacity, uint64_t *needed);
extern void go_set_error(uint64_t comm, int32_t code, char *call, char *text, uint64_t bytes);
extern int32_t go_last_error(uint64_t comm, char *text, uint64_t capacity);
extern int32_t go_register(uint64_t comm, void *memory, int64_t bytes);
extern int32_t go_register_symmetric(uint64_t comm, void *memory, int64_t bytes);
extern int32_t go_deregister(uint64_t comm, void *memory);
extern int32_t go_allocator_create(uint64_t comm, int32_t symmetric, int64_t segment_bytes, uint64_t *allocator);
extern int32_t go_allocator_alloc(uint64_t allocator, int64_t bytes, void *stream, void **memory);
extern int32_t go_allocator_free(uint64_t allocator, void *memory, void *stream);
extern int32_t go_allocator_record_stream(uint64_t allocator, void *memory, void *stream);
extern int32_t go_allocator_reserve(uint64_t allocator, int64_t bytes);
extern int32_t go_allocator_trim(uint64_t allocator);
extern int32_t go_allocator_get_stats(uint64_t allocator, shunt_allocator_stats *stats);
extern int32_t go_allocator_device(uint64_t allocator, int32_t *device);
extern int32_t go_allocator_destroy(uint64_t allocator, int32_t *gone);
extern int32_t go_window_create(uint64_t comm, int64_t bytes, uint64_t *window, void **base);
extern int32_t go_window_at(uint64_t comm, void *memory, int64_t bytes, uint64_t *window, void **base);
extern int32_t go_window_free(uint64_t window);
extern int32_t go_peer_address(uint64_t comm, void *memory, int32_t peer, void **address);

/* What a function begins with: it cannot run in a forked child, and does not take a null pointer.
 * comm is the communicator that the call is on, or NULL. */
#define GUARD()            \
  do {                     \
    if (shunt_forked())    \
      return SHUNT_FORKED; \
  } while (0)

#define NEED(comm, pointer)                                                                    \
  do {                                                                                         \
    if ((pointer) == NULL)                                                                     \
      return shunt_fail((comm), SHUNT_INVALID_ARGUMENT, "%s: " #pointer " is NULL", __func__); \
  } while (0)

/* NEED in a function that other ranks call as well. */
#define NEED_OF_ALL(comm, pointer)                                                                       \
  do {                                                                                                   \
    if ((pointer) == NULL)                                                                               \
      return shunt_refuse((comm), __func__ + sizeof "shunt_" - 1, "%s: " #pointer " is NULL", __func__); \
  } while (0)

#endif
