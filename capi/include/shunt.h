/*
 * shunt.h: Shunt's collectives for C and C++.
 *
 * Link with -lshunt, or load libshunt.so with dlopen. Every function returns a
 * shunt_status; SHUNT_OK is 0, and shunt_last_error says in one sentence what
 * went wrong, on which rank, with which peer and why.
 *
 * Handles (shunt_comm, shunt_window, shunt_request) are opaque numbers dressed
 * as pointers. A handle that was closed, or that Shunt never gave out, is
 * refused with SHUNT_INVALID_ARGUMENT; it is never followed.
 *
 * Memory is the caller's. A blocking call may use it until it returns, a
 * started one until shunt_request_wait returns, and one on memory of a CUDA
 * device until it has ended in its stream. Counts and displacements are
 * 64-bit and in elements of dtype; offsets into windows are in bytes.
 *
 * Threads. Any thread may call any function. What two threads do on one
 * communicator at the same time is put in some order; every rank must end up
 * with the same order of collectives, so give each thread its own communicator
 * (shunt_split) unless the threads already agree on one.
 *
 * Fork. Shunt's threads do not survive fork() without exec. In such a child
 * every call answers SHUNT_FORKED and runs no other code of Shunt.
 *
 * In place. As in NCCL: all_reduce, reduce and broadcast send == recv,
 * all_gather and gather send == recv + rank * count elements, reduce_scatter and
 * scatter recv == send + rank * count elements, the varying ones at this rank's
 * block. Other overlaps are SHUNT_INVALID_ARGUMENT. Memory is aligned to the
 * elements.
 *
 * Streams. With options.memory SHUNT_MEMORY_CUDA all memory is that of the
 * communicator's CUDA device, and the last argument of every collective is a
 * CUstream (a cudaStream_t is one), or NULL for the default stream. A call puts
 * the operation into the stream and returns; it may be captured in a graph once
 * the communicator is made, and the graph may outlive it. A communicator's
 * operations run one after the other, in the order of the calls, whatever
 * their streams. The calling thread's current context is left as it is. What
 * goes wrong on the device later is told by the next call on the communicator,
 * by shunt_synchronize, or, without waiting, by shunt_get_async_error. With host memory a call returns when the result is
 * there, and the stream is not looked at.
 */
#ifndef SHUNT_H
#define SHUNT_H

#include <stddef.h>
#include <stdint.h>

#include "shunt_tables.h"

#if defined(__GNUC__)
#define SHUNT_API __attribute__((visibility("default")))
#else
#define SHUNT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. shunt_version gives the library's. */
#define SHUNT_API_MAJOR 1
#define SHUNT_API_MINOR 1
#define SHUNT_API_PATCH 0

/* Room for a unique id, a message and an explanation, with the final zero. */
#define SHUNT_UNIQUE_ID_BYTES 512
#define SHUNT_MESSAGE_BYTES 2048

/* shunt_split: this rank joins no sub-group. */
#define SHUNT_NO_COLOR (-1)

/* shunt_options.device: the device of this process's number among the ranks of
 * its host, as the launcher numbers them, modulo the number of devices. */
#define SHUNT_DEVICE_AUTO (-1)

typedef struct shunt_comm_s *shunt_comm;
typedef struct shunt_window_s *shunt_window;
typedef struct shunt_request_s *shunt_request;

/* How to join. Start from SHUNT_OPTIONS_INIT: it takes everything from the
 * environment. Strings are UTF-8 and are copied before shunt_comm_init
 * returns. */
typedef struct shunt_options {
  size_t struct_size;       /* sizeof(shunt_options) */
  int32_t rank;             /* ignored if world is 0 */
  int32_t world;            /* 0: rank and world from the launcher's environment */
  const char *id;           /* a unique id, "tcp://host:port", "file:///path"; NULL or "env": environment */
  const char *transports;   /* as SHUNT_TRANSPORTS; NULL: from there, else all */
  int64_t timeout_ms;       /* deadline of one operation; 0: SHUNT_TIMEOUT */
  int32_t device;           /* CUDA ordinal or SHUNT_DEVICE_AUTO; used with memory cuda */
  shunt_memory_kind memory; /* where send and recv memory lives */
  uint64_t flags;           /* 0 */
  const int32_t *cancel;    /* NULL, or a word that ends shunt_comm_init with SHUNT_ABORTED, here and on every
                               rank, within a tenth of a second after it was set to other than 0, by any thread
                               or signal handler; since 1.1 */
  int32_t max_sms;          /* most multiprocessors of a GPU that the kernels of a communicator occupy at once; the
                               smallest of the ranks' values counts; 0: SHUNT_MAX_SMS; since 1.1 */
  int32_t reserved;         /* 0 */
} shunt_options;

#define SHUNT_OPTIONS_INIT \
  { sizeof(shunt_options), 0, 0, NULL, NULL, 0, SHUNT_DEVICE_AUTO, SHUNT_MEMORY_HOST, 0, NULL, 0, 0 }

/* One operation, for shunt_run and shunt_start. Which fields matter depends on
 * collective; the functions further down name them. Start from
 * SHUNT_OPERATION_INIT. */
typedef struct shunt_operation {
  size_t struct_size; /* sizeof(shunt_operation) */
  shunt_collective collective;
  shunt_dtype dtype;
  shunt_op op;
  int32_t root;  /* or the peer of send, recv, put, get, signal and wait */
  double scalar; /* premul_sum: this rank's factor */
  const void *send;
  void *recv;
  int64_t count;
  const int64_t *send_counts; /* world entries each; displacements may be */
  const int64_t *send_displs; /* NULL: packed in rank order */
  const int64_t *recv_counts;
  const int64_t *recv_displs;
  shunt_window window; /* put, get, signal, wait */
  int64_t offset;      /* bytes in the peer's window; wait: raises to wait for */
  void *stream;
  /* Since 1.1, for all_to_all_v; see shunt_all_to_all_v_on_device. */
  uint32_t counts_on_device; /* 1: the four arrays are the device's; else 0 */
  uint32_t reserved;         /* 0 */
  int64_t send_capacity;     /* elements that send and recv have room for, where the counts are the device's */
  int64_t recv_capacity;
} shunt_operation;

#define SHUNT_OPERATION_INIT \
  { sizeof(shunt_operation), 0, 0, 0, 0, 0.0, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0 }

/* ---- the library --------------------------------------------------------- */

/* The library's version; any pointer may be NULL. */
SHUNT_API shunt_status shunt_version(int32_t *major, int32_t *minor, int32_t *patch);

/* The name of a status, such as "peer_died"; "unknown" for other values. The
 * string is static. */
SHUNT_API const char *shunt_status_string(shunt_status status);

/* The message of the last call that failed: with a communicator, the last on
 * it by any thread (or shunt_get_async_error with a failure to tell); with NULL, the last by this thread on anything, which is
 * also where to look when a communicator could not be made or was closed.
 * Never NULL; empty if nothing failed. Valid until this thread's next call of
 * a Shunt function. */
SHUNT_API const char *shunt_last_error(shunt_comm comm);

/* ---- communicators ------------------------------------------------------- */

/* A text that every rank of one communicator passes as options.id. This
 * process serves the rendezvous until that communicator is made, so it must be
 * one of the ranks. capacity: SHUNT_UNIQUE_ID_BYTES is enough. */
SHUNT_API shunt_status shunt_get_unique_id(char *id, size_t capacity);

/* Collective: joins the ranks and makes *comm. NULL options, or
 * shunt_comm_init_env: everything from the environment. */
SHUNT_API shunt_status shunt_comm_init(const shunt_options *options, shunt_comm *comm);
SHUNT_API shunt_status shunt_comm_init_env(shunt_comm *comm);

SHUNT_API shunt_status shunt_rank(shunt_comm comm, int32_t *rank);
SHUNT_API shunt_status shunt_world(shunt_comm comm, int32_t *world);

/* Collective: ranks with the same color >= 0 form a new communicator, ordered
 * by key, then by rank. With SHUNT_NO_COLOR *split is NULL. */
SHUNT_API shunt_status shunt_split(shunt_comm comm, int32_t color, int32_t key, shunt_comm *split);

/* Collective among the ranks that are alive: a new communicator of them, in the
 * same order, after a peer's death or an abort. comm is then only good for
 * shunt_close. */
SHUNT_API shunt_status shunt_shrink(shunt_comm comm, shunt_comm *shrunk);

/* Makes every rank's pending and later calls fail with SHUNT_ABORTED. May be
 * called while another thread is inside a call on comm. reason may be NULL. */
SHUNT_API shunt_status shunt_abort(shunt_comm comm, const char *reason);

/* Local: waits for this rank's operations in flight, then releases everything,
 * windows and requests included. The handle is gone whatever the status, which
 * says what went wrong in letting go, less what a call on comm has answered
 * already. */
SHUNT_API shunt_status shunt_close(shunt_comm comm);

/* Which transport and algorithm serves an operation of count elements, and why
 * not the others. Writes at most capacity bytes with the final zero and, if
 * needed is not NULL, the bytes of the whole text with it. */
SHUNT_API shunt_status shunt_explain(shunt_comm comm, shunt_collective collective, shunt_dtype dtype, shunt_op op,
                                     int64_t count, char *text, size_t capacity, size_t *needed);

/* ---- what went wrong, and what ran --------------------------------------- */

/* Both are answered at once, by any thread, also while other threads are inside
 * calls on comm and while those hang: nothing is waited for. Since 1.1. */

/* Whether comm still works, for a watchdog that asks every now and then, as with
 * ncclCommGetAsyncError: *async_error is SHUNT_OK, also while operations are
 * under way, or the code of the failure that every later call on comm will
 * answer; shunt_last_error then says why, as after such a call. What
 * is returned says only whether the question could be answered. A rank's death
 * is known at once, what a kernel has found within a quarter of a second. */
SHUNT_API shunt_status shunt_get_async_error(shunt_comm comm, shunt_status *async_error);

/* The flight recorder: the latest operations of this rank, as many as
 * SHUNT_FLIGHT_RECORDER_SIZE says, as the text of one JSON object in UTF-8:
 *   {"communicator":"world","job":"59...","rank":1,"world":4,"pid":4711,"host":"a",
 *    "last":{"number":5,"collective":"all_reduce","state":"called"},
 *    "code":"timeout","failure":"rank 1 had no answer ...","operations":[
 *    {"number":7,"collective":"all_reduce","dtype":"float32","op":"sum","count":1024,
 *     "root":0,"begin_ns":1200345,"end_ns":0,"state":"running"}]}
 * oldest first; code and failure only after one, op only of reductions,
 * "symmetric":true only for such memory; times since the communicator was made.
 * state is running, ended or failed; on a GPU enqueued, for an operation that was
 * put into its stream: whether it has ended there is not seen. last, absent before
 * the first, is the call made last; its number counts collectives alone, as all
 * ranks do, and its state is called until it has ended well. job is the same on
 * all ranks. There may be other fields.
 *
 * *bytes is what the text takes with the final zero, also when that is more than
 * capacity: then the answer is SHUNT_INVALID_ARGUMENT and json is empty. With
 * capacity 0 only *bytes is answered, and json may be NULL; by the next call the
 * text may be longer, and by some digits though nothing runs, as times are
 * measured anew: leave room, and be ready to ask again. Otherwise bytes may be
 * NULL. */
SHUNT_API shunt_status shunt_records(shunt_comm comm, char *json, size_t capacity, size_t *bytes);

/* ---- collectives --------------------------------------------------------- */

/* Reduces count elements over all ranks into every rank's recv. premul_sum
 * needs a scalar: use shunt_run for it, here and below. */
SHUNT_API shunt_status shunt_all_reduce(shunt_comm comm, const void *send, void *recv, int64_t count,
                                        shunt_dtype dtype, shunt_op op, void *stream);

/* Reduces count elements over all ranks into root's recv. */
SHUNT_API shunt_status shunt_reduce(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                    shunt_op op, int32_t root, void *stream);

/* Root's count elements at send go to every rank's recv; other ranks' send is
 * ignored. */
SHUNT_API shunt_status shunt_broadcast(shunt_comm comm, const void *send, void *recv, int64_t count,
                                       shunt_dtype dtype, int32_t root, void *stream);

/* Every rank's count elements, in rank order, into every rank's recv of
 * world * count elements. */
SHUNT_API shunt_status shunt_all_gather(shunt_comm comm, const void *send, void *recv, int64_t count,
                                        shunt_dtype dtype, void *stream);

/* As all_gather, with recv_counts[r] elements of rank r at recv_displs[r]. */
SHUNT_API shunt_status shunt_all_gather_v(shunt_comm comm, const void *send, void *recv, const int64_t *recv_counts,
                                          const int64_t *recv_displs, shunt_dtype dtype, void *stream);

/* Reduces world * count elements; rank r gets block r of count elements. */
SHUNT_API shunt_status shunt_reduce_scatter(shunt_comm comm, const void *send, void *recv, int64_t count,
                                            shunt_dtype dtype, shunt_op op, void *stream);

/* As reduce_scatter, with block r of send_counts[r] elements at
 * send_displs[r]. */
SHUNT_API shunt_status shunt_reduce_scatter_v(shunt_comm comm, const void *send, void *recv,
                                              const int64_t *send_counts, const int64_t *send_displs,
                                              shunt_dtype dtype, shunt_op op, void *stream);

/* Block r of count elements goes to rank r. */
SHUNT_API shunt_status shunt_all_to_all(shunt_comm comm, const void *send, void *recv, int64_t count,
                                        shunt_dtype dtype, void *stream);

/* send_counts[r] elements at send_displs[r] go to rank r, which must expect as
 * many; the same in the other direction. */
SHUNT_API shunt_status shunt_all_to_all_v(shunt_comm comm, const void *send, const int64_t *send_counts,
                                          const int64_t *send_displs, void *recv, const int64_t *recv_counts,
                                          const int64_t *recv_displs, shunt_dtype dtype, void *stream);

/* shunt_all_to_all_v with counts in memory of the communicator's device, which the
 * kernel reads when it runs: what ran before it in the stream may have computed
 * them, and a graph uses those of each replay. Memory and all four arrays are
 * device addresses; an array has one int64_t for each rank, in elements, and is
 * aligned to 8 bytes; displacements may be NULL: packed in rank order. Capacities
 * are numbers of the host: the elements that send and recv have room for.
 *
 * The arrays are the caller's. They lie outside recv's memory, and stay, unchanged,
 * until the stream is past the call; those of a graph, through each replay.
 *
 * The host sees no counts, so the kernel refuses those that cannot be: negative
 * ones, those that reach past a capacity, and one to this rank itself that is not
 * the one from itself. It stores and sends nothing then, and comm fails on all ranks
 * with SHUNT_INVALID_ARGUMENT, "counts in device memory on rank 1: send count -3 for
 * rank 0 is negative", as the next call, shunt_synchronize and shunt_get_async_error
 * tell. Ends of a pair that disagree are SHUNT_MISMATCH in the same way. So are ranks
 * of which only some have their counts on the device. A communicator on host memory
 * returns SHUNT_INVALID_ARGUMENT. Since 1.1. */
SHUNT_API shunt_status shunt_all_to_all_v_on_device(shunt_comm comm, const void *send, int64_t send_capacity,
                                                    const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                                    int64_t recv_capacity, const int64_t *recv_counts,
                                                    const int64_t *recv_displs, shunt_dtype dtype, void *stream);

/* Every rank's count elements, in rank order, into root's recv. */
SHUNT_API shunt_status shunt_gather(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                    int32_t root, void *stream);

/* As gather: this rank gives count elements; root says how many come from
 * whom, other ranks may pass NULL. */
SHUNT_API shunt_status shunt_gather_v(shunt_comm comm, const void *send, int64_t count, void *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs, shunt_dtype dtype,
                                      int32_t root, void *stream);

/* Root's block r of count elements goes to rank r. */
SHUNT_API shunt_status shunt_scatter(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                     int32_t root, void *stream);

/* As scatter: this rank gets count elements; root says how many go to whom,
 * other ranks may pass NULL. */
SHUNT_API shunt_status shunt_scatter_v(shunt_comm comm, const void *send, const int64_t *send_counts,
                                       const int64_t *send_displs, void *recv, int64_t count, shunt_dtype dtype,
                                       int32_t root, void *stream);

/* count elements to peer, matched by its recv in the order of the calls, which
 * must have as many bytes: another length is SHUNT_MISMATCH on the receiver, and on
 * the sender then or in a later call. May return once they are buffered; two ranks
 * that send to each other first need a group. */
SHUNT_API shunt_status shunt_send(shunt_comm comm, const void *send, int64_t count, shunt_dtype dtype, int32_t peer,
                                  void *stream);
SHUNT_API shunt_status shunt_recv(shunt_comm comm, void *recv, int64_t count, shunt_dtype dtype, int32_t peer,
                                  void *stream);

/* No rank returns before every rank has called. */
SHUNT_API shunt_status shunt_barrier(shunt_comm comm, void *stream);

/* Waits until everything in a stream has ended, and returns how the
 * communicator is then: operations that were aborted end too. With host memory
 * there is nothing to wait for. */
SHUNT_API shunt_status shunt_synchronize(shunt_comm comm, void *stream);

/* Any operation as a struct, and premul_sum. */
SHUNT_API shunt_status shunt_run(shunt_comm comm, const shunt_operation *operation);

/* ---- groups -------------------------------------------------------------- */

/* Between start and end, this thread's send, recv, put, get, signal and wait
 * on comm are queued and answer SHUNT_OK; end runs them together, so that
 * sends and receives need no order, and answers for all of them. A collective
 * of all ranks in a group makes end fail before anything ran. Send and recv
 * memory must stay until end. Groups nest; the outermost end runs them. Calls
 * of other threads and on other communicators are not part of the group. */
SHUNT_API shunt_status shunt_group_start(shunt_comm comm);
SHUNT_API shunt_status shunt_group_end(shunt_comm comm);

/* Forgets the group of this thread on comm, however deep, and runs nothing. */
SHUNT_API shunt_status shunt_group_cancel(shunt_comm comm);

/* ---- started operations -------------------------------------------------- */

/* Begins an operation and returns; the memory must stay until it has ended.
 * Counts and displacements on the host are copied. Not allowed inside a group. */
SHUNT_API shunt_status shunt_start(shunt_comm comm, const shunt_operation *operation, shunt_request *request);

/* Waits at most timeout_ms, 0 for not at all. *done is 1 if the operation has
 * ended, well or badly, else 0. The request stays until shunt_request_wait. */
SHUNT_API shunt_status shunt_request_test(shunt_request request, int64_t timeout_ms, int32_t *done);

/* Waits for the end of the operation, returns how it ended, and releases the
 * request. Every request must be waited for once, or its communicator
 * closed. */
SHUNT_API shunt_status shunt_request_wait(shunt_request request);

/* ---- calls that can be interrupted --------------------------------------- */

/* For languages whose signal handlers run between calls. From now on a
 * collective, shunt_run, shunt_group_end or shunt_synchronize on comm that takes
 * longer than block_limit_ms returns SHUNT_PENDING, which is neither success nor failure: the
 * operation goes on, with the memory, until the same thread has called
 * shunt_continue as often as it takes, or shunt_cancel. Calls that end in time
 * cost what they cost without it. 0, the default: never. On memory of a CUDA
 * device calls return anyway, but for the first of its kind. Since 1.1. */
#define SHUNT_PENDING (-1)
SHUNT_API shunt_status shunt_set_block_limit(shunt_comm comm, int64_t block_limit_ms);

/* Waits as long again for what this thread's latest call on comm has left
 * pending: what that call would have returned, or SHUNT_PENDING. */
SHUNT_API shunt_status shunt_continue(shunt_comm comm);

/* Aborts comm, as shunt_abort does, and waits until what this thread has left
 * pending on it has ended, so that nothing touches the memory any more; it returns
 * how that ended. With nothing pending it does nothing. */
SHUNT_API shunt_status shunt_cancel(shunt_comm comm, const char *reason);

/* ---- registered memory --------------------------------------------------- */

/* Collective: from the next call on, long messages from and to this memory of
 * the communicator's GPU go straight between the ranks' buffers. Without it that
 * comes about by itself, some time after the first call that could use it; and
 * memory that peers cannot map is staged, which is an error here. Every rank
 * registers memory of its own, which must lie within one allocation. With host
 * memory there is nothing to do. */
SHUNT_API shunt_status shunt_register(shunt_comm comm, const void *memory, int64_t bytes);

/* Collective: shunt_register with a promise, by which large messages may go
 * through the GPUs' copy engines: whenever the receive memory of all_reduce,
 * all_gather, all_to_all, broadcast or scatter lies in this memory on one rank, it
 * lies in what all ranks registered together, at the same offset, on every rank; in
 * calls and in graphs. An all_reduce into it is in place on all ranks or on none. A call that breaks it fails with SHUNT_MISMATCH on all ranks,
 * which names two of them, and other bytes of the memory may have been overwritten.
 * bytes are equal on all ranks; what is registered so does not overlap, and stays
 * allocated until shunt_deregister. Windows are symmetric without it. */
SHUNT_API shunt_status shunt_register_symmetric(shunt_comm comm, const void *memory, int64_t bytes);

/* Local: undoes one shunt_register_symmetric at, or one shunt_register of, the
 * memory there. Optional: memory that was registered plainly and is freed, and a
 * communicator that is closed, are forgotten by themselves. All ranks undo
 * shunt_register_symmetric between the same two collectives. */
SHUNT_API shunt_status shunt_deregister(shunt_comm comm, const void *memory);

/* ---- windows ------------------------------------------------------------- */

/* Collective: bytes of zero-filled memory of this rank that every peer
 * reaches, on the communicator's device if its memory is CUDA's; *base is its
 * address here. bytes must be equal on all ranks. */
SHUNT_API shunt_status shunt_window_create(shunt_comm comm, int64_t bytes, shunt_window *window, void **base);

/* Local: gives up this rank's part; no rank may use the window afterwards. The
 * handle is gone whatever the status. */
SHUNT_API shunt_status shunt_window_free(shunt_window window);

/* Writes count elements into peer's window, offset bytes from its start. */
SHUNT_API shunt_status shunt_put(shunt_comm comm, shunt_window window, const void *send, int64_t count,
                                 shunt_dtype dtype, int32_t peer, int64_t offset, void *stream);

/* Reads count elements from peer's window, offset bytes from its start. */
SHUNT_API shunt_status shunt_get(shunt_comm comm, shunt_window window, void *recv, int64_t count, shunt_dtype dtype,
                                 int32_t peer, int64_t offset, void *stream);

/* Raises this rank's counter at peer's window, after its earlier puts there
 * have become visible. */
SHUNT_API shunt_status shunt_signal(shunt_comm comm, shunt_window window, int32_t peer, void *stream);

/* Waits until peer has raised its counter at this rank's window another times
 * times. */
SHUNT_API shunt_status shunt_wait(shunt_comm comm, shunt_window window, int32_t peer, int64_t times, void *stream);

#ifdef __cplusplus
}
#endif

#endif
