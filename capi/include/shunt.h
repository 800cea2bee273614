/*
 * shunt.h: Shunt's collectives for C and C++.
 *
 * Link with -lshunt, or load libshunt.so with dlopen. Every function returns a
 * shunt_status; SHUNT_OK is 0, and shunt_last_error says in one sentence what
 * went wrong, on which rank, with which peer and why.
 *
 * Handles (shunt_comm, shunt_window, shunt_request) are opaque numbers in the form
 * of pointers. A handle that was closed, or that Shunt never returned, is rejected
 * with SHUNT_INVALID_ARGUMENT and never dereferenced.
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
 * every call returns SHUNT_FORKED and runs no other code of Shunt; only
 * shunt_version, shunt_status_string and shunt_last_error work.
 *
 * Signals. A handler may run while its thread is in a call of Shunt, which needs
 * SA_ONSTACK (see sigaction(2)): shunt_comm_init and shunt_split set that flag on the
 * handlers that are there without it; of later ones the program sets it itself. With
 * the flag a handler has 32 KiB of stack in each thread that has called Shunt, also
 * outside calls, unless the thread has called sigaltstack before.
 *
 * In place. As in NCCL: all_reduce, reduce and broadcast send == recv,
 * all_gather and gather send == recv + rank * count elements, reduce_scatter and
 * scatter recv == send + rank * count elements, the varying ones at this rank's
 * block. Other overlaps are SHUNT_INVALID_ARGUMENT, also of blocks that are received, and
 * in place of a block that is reduced with another (displacements in device memory are
 * not looked at). Memory is aligned to the elements.
 *
 * Streams. With options.memory SHUNT_MEMORY_CUDA all memory is that of the
 * communicator's CUDA device, and the last argument of every collective is a
 * CUstream (a cudaStream_t is one), or NULL for the default stream. A call puts
 * the operation into the stream and returns; it may be captured in a graph once
 * the communicator is made, and the graph may outlive it. A communicator's
 * operations run one after the other, in the order of the calls, whatever
 * their streams. The calling thread's current context is left as it is. Errors
 * on the device are returned by the next call on the communicator, by
 * shunt_synchronize, or, without waiting, by shunt_get_async_error. With host memory
 * a call returns when the result is there, and the stream is ignored.
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

/* Room for a unique id, and for a message, with the final zero. */
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
typedef struct shunt_allocator_s *shunt_allocator;

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
                               or signal handler; the process that serves the rendezvous stays a second longer, to
                               tell ranks that come late; since 1.1 */
  int32_t max_sms;          /* most multiprocessors of a GPU that the kernels of a communicator occupy at once; the
                               smallest of the ranks' values counts; 0: SHUNT_MAX_SMS; since 1.1 */
  int32_t reserved;         /* 0 */
  const char *label;        /* NULL, or the words by which log lines tell this communicator from others of the
                               process; since 1.1 */
} shunt_options;

#define SHUNT_OPTIONS_INIT \
  { sizeof(shunt_options), 0, 0, NULL, NULL, 0, SHUNT_DEVICE_AUTO, SHUNT_MEMORY_HOST, 0, NULL, 0, 0, NULL }

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
  int64_t count; /* where counts_on_device is 1, the elements that each of those counts stands for; 0: one */
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
 * it by any thread, or the failure that shunt_get_async_error returned last; with NULL,
 * the last by this thread on anything, also when a communicator could not be made or was
 * closed.
 * Never NULL; empty if nothing failed. Valid until this thread's next call of
 * a Shunt function. */
SHUNT_API const char *shunt_last_error(shunt_comm comm);

/* ---- log lines ------------------------------------------------------------ */

typedef enum shunt_log_level {
  SHUNT_LOG_DEBUG,
  SHUNT_LOG_INFO,
  SHUNT_LOG_WARN,
  SHUNT_LOG_ERROR
} shunt_log_level;

/* text is one line in UTF-8 without an end of line, good until the function returns. */
typedef void (*shunt_log_function)(void *context, shunt_log_level level, const char *text);

/* From now on function gets this library's log lines of level and above, whatever SHUNT_LOG says; with NULL they go to
 * standard error again, as SHUNT_LOG says. Threads of Shunt's call it, one at a time, in the order of the lines, and
 * perhaps after the call that a line is about has returned. It may take its time: at most 1024 lines wait for it, the
 * others are counted in a line. It must not call shunt_set_log.
 *
 * The function that was set before is not called any more once this returns: it waits until that one has had its
 * lines. Set NULL before context, or the function's library, goes away, and before exit. Since 1.1. */
SHUNT_API shunt_status shunt_set_log(shunt_log_function function, void *context, shunt_log_level level);

/* ---- communicators ------------------------------------------------------- */

/* A text that every rank of one communicator passes as options.id. This
 * process serves the rendezvous until the ranks that joined have left, so it
 * must be one of them. capacity: SHUNT_UNIQUE_ID_BYTES is enough. */
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
 * same order, after a failure of comm, which is then only good for
 * shunt_close. */
SHUNT_API shunt_status shunt_shrink(shunt_comm comm, shunt_comm *shrunk);

/* Collective among the given ranks of comm alone: a new communicator of them, in this
 * order. Each of them passes the same ranks, its own among them; the others need not
 * call, need not be alive, and comm may have failed. Since 1.1. */
SHUNT_API shunt_status shunt_subset(shunt_comm comm, const int32_t *ranks, int32_t count, shunt_comm *subset);

/* Collective: recv gets the bytes that every rank gives, in rank order, world times bytes; both lie in host memory,
 * whatever the communicator's is. They travel over the connections of the rendezvous, beside the streams: for what
 * ranks tell each other before they call another library, such as the unique id of another one, not for data. Every
 * rank gives as many bytes, at most 4 MiB in all. Since 1.1. */
SHUNT_API shunt_status shunt_exchange(shunt_comm comm, const void *send, int64_t bytes, void *recv);

/* Local, for bindings: tells the other ranks that this one has not made a call, because of arguments that the binding
 * found wrong before it came to Shunt. call is its name, such as "all_reduce"; why is one sentence, of which some 200
 * bytes are kept. Errors of ranks that wait for it say why, as they do of calls that Shunt refuses itself. Nothing else
 * changes. May be called while another thread is inside a call on comm. Since 1.1. */
SHUNT_API shunt_status shunt_note_refusal(shunt_comm comm, const char *call, const char *why);

/* Makes every rank's pending and later calls fail with SHUNT_ABORTED. May be
 * called while another thread is inside a call on comm. reason may be NULL. */
SHUNT_API shunt_status shunt_abort(shunt_comm comm, const char *reason);

/* Changes the deadline of what this rank calls on comm from now on, in milliseconds, more than 0;
 * shunt_options.timeout_ms or SHUNT_TIMEOUT has set it. An operation that runs already keeps its own. On memory of a
 * CUDA device it bounds what is enqueued already, and graphs, too. Communicators that are made of comm later
 * inherit it. A longer one on one rank alone does not keep the others from ending what waits for it. May be
 * called while another thread is inside a call on comm. Since 1.1. */
SHUNT_API shunt_status shunt_set_timeout(shunt_comm comm, int64_t timeout_ms);

/* Waits for this rank's operations in flight, on a GPU two seconds at most (what
 * runs then continues in its stream, and ends well if the peers come), then releases
 * everything, windows and requests included. For peers it does not wait, but the last
 * one in the process that runs the rendezvous gives them 5 seconds to close. The handle is invalid afterwards, whatever
 * the status, which is an error of the release or of such an operation, not one that a
 * call on comm has returned already. While it waits, other threads may still call shunt_abort, which ends what it
 * waits for, shunt_set_timeout, shunt_get_async_error, shunt_records and shunt_last_error. */
SHUNT_API shunt_status shunt_close(shunt_comm comm);

/* Which transport and algorithm serves an operation of count elements, and why
 * not the others. Writes at most capacity bytes with the final zero and, if
 * needed is not NULL, the bytes of the whole text with it. */
SHUNT_API shunt_status shunt_explain(shunt_comm comm, shunt_collective collective, shunt_dtype dtype, shunt_op op,
                                     int64_t count, char *text, size_t capacity, size_t *needed);

/* ---- what went wrong, and what ran --------------------------------------- */

/* Both return at once, in any thread, also while other threads are inside calls on
 * comm and while those hang. Since 1.1. */

/* Returns the state of comm, for a watchdog that calls it now and then, as it would call
 * ncclCommGetAsyncError: *async_error is SHUNT_OK, also while operations are
 * under way, or the code of the failure that every later call on comm will
 * return; shunt_last_error then says why, as after such a call. The
 * function's own status says only whether *async_error was set. A rank's death is
 * known at once, and the failure of an operation once its stream is past it. */
SHUNT_API shunt_status shunt_get_async_error(shunt_comm comm, shunt_status *async_error);

/* The flight recorder: the latest operations of this rank, as many as
 * SHUNT_FLIGHT_RECORDER_SIZE says, as the text of one JSON object in UTF-8:
 *   {"communicator":"world","job":"59...","rank":1,"world":4,"pid":4711,"host":"a",
 *    "last":{"number":5,"collective":"all_reduce","state":"called"},
 *    "code":"timeout","failure":"rank 1 got no response ...","operations":[
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
 * *bytes is set to the size of the text with the final zero, also when that is more
 * than capacity: then it returns SHUNT_INVALID_ARGUMENT and json is empty. With
 * capacity 0 only *bytes is set, and json may be NULL; by the next call the
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
 * The host sees no counts, so the kernel rejects invalid ones: negative ones, those
 * that reach past a capacity, and one to this rank itself that differs from the one from
 * itself. It then stores and sends nothing, and comm fails on all ranks with
 * SHUNT_INVALID_ARGUMENT, "counts in device memory on rank 1: send count -3 for
 * rank 0 is negative", which the next call, shunt_synchronize and shunt_get_async_error
 * return. Ends of a pair that disagree are SHUNT_MISMATCH in the same way. So are ranks
 * of which only some have their counts on the device. A communicator on host memory
 * returns SHUNT_INVALID_ARGUMENT. Since 1.1. */
SHUNT_API shunt_status shunt_all_to_all_v_on_device(shunt_comm comm, const void *send, int64_t send_capacity,
                                                    const int64_t *send_counts, const int64_t *send_displs, void *recv,
                                                    int64_t recv_capacity, const int64_t *recv_counts,
                                                    const int64_t *recv_displs, shunt_dtype dtype, void *stream);

/* Every rank's count elements, in rank order, into root's recv. */
SHUNT_API shunt_status shunt_gather(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                    int32_t root, void *stream);

/* As gather: this rank gives count elements; root gives how many come
 * from each rank; other ranks may pass NULL. */
SHUNT_API shunt_status shunt_gather_v(shunt_comm comm, const void *send, int64_t count, void *recv,
                                      const int64_t *recv_counts, const int64_t *recv_displs, shunt_dtype dtype,
                                      int32_t root, void *stream);

/* Root's block r of count elements goes to rank r. */
SHUNT_API shunt_status shunt_scatter(shunt_comm comm, const void *send, void *recv, int64_t count, shunt_dtype dtype,
                                     int32_t root, void *stream);

/* As scatter: this rank gets count elements; root gives how many go to each
 * rank; other ranks may pass NULL. */
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
 * on comm are queued and return SHUNT_OK; end runs them together, so that
 * sends and receives need no order, and returns the status of all. A collective
 * of all ranks in a group makes end fail before anything ran. Send and recv
 * memory must stay until end. Groups nest; the outermost end runs them. Calls
 * of other threads and on other communicators are not part of the group. */
SHUNT_API shunt_status shunt_group_start(shunt_comm comm);
SHUNT_API shunt_status shunt_group_end(shunt_comm comm);

/* Forgets the group of this thread on comm, however deep, and runs nothing. */
SHUNT_API shunt_status shunt_group_cancel(shunt_comm comm);

/* Operations of several communicators of this process at once: operation i is run on
 * comms[i]. It is for a thread that drives several GPUs, one rank each: called one after
 * another, the first rank's operation may wait for a rank that the same thread has yet
 * to call. Each communicator runs its operations in the order given, sends, receives and
 * one-sided operations between two collectives as one group. It returns when each is
 * enqueued (device memory) or has ended (host memory). Since 1.1. */
SHUNT_API shunt_status shunt_run_together(const shunt_comm *comms, const shunt_operation *operations, int64_t count);

/* ---- started operations -------------------------------------------------- */

/* Begins an operation and returns; the memory must stay until it has ended.
 * Counts and displacements on the host are copied. Not allowed inside a group. */
SHUNT_API shunt_status shunt_start(shunt_comm comm, const shunt_operation *operation, shunt_request *request);

/* Waits at most timeout_ms, 0 for not at all. *done is 1 if the operation has
 * ended, with success or an error, else 0. The request stays until shunt_request_wait. */
SHUNT_API shunt_status shunt_request_test(shunt_request request, int64_t timeout_ms, int32_t *done);

/* Adds 1 to the counter of an eventfd once the operation has ended, with success or an
 * error, and at once if it has: for programs that wait by epoll or in an event loop. The
 * library uses a descriptor of its own for it, so the caller may close fd before. The
 * request stays until shunt_request_wait. Since 1.1. */
SHUNT_API shunt_status shunt_request_notify(shunt_request request, int32_t eventfd);

/* Waits for the end of the operation, returns how it ended, and releases the
 * request. Every request must be waited for once, or its communicator
 * closed. */
SHUNT_API shunt_status shunt_request_wait(shunt_request request);

/* ---- calls that can be interrupted --------------------------------------- */

/* For languages whose signal handlers run between calls. From now on a
 * collective, shunt_run, shunt_group_end or shunt_synchronize on comm that takes
 * longer than block_limit_ms returns SHUNT_PENDING, which is neither success nor failure: the
 * operation continues, with the memory, until the same thread has called
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

/* From now on a shunt_split, shunt_shrink, shunt_subset or shunt_exchange of comm that waits for other ranks ends with
 * SHUNT_ABORTED, here and on every rank, within a tenth of a second after the word was set to other than 0, by any
 * thread or signal handler; comm stays usable. The word must stay until such a call, if one is under way, has returned
 * and another word, or NULL, which is the default, was set. Since 1.1. */
SHUNT_API shunt_status shunt_set_cancel(shunt_comm comm, const int32_t *cancel);

/* ---- registered memory --------------------------------------------------- */

/* Collective: from the next call on, long messages from and to this memory of
 * the communicator's GPU go straight between the ranks' buffers. Without it peers map the
 * memory in the background, some time after the first call that could use it, and memory
 * that they cannot map is staged, which is an error here. Every rank
 * registers memory of its own, which must lie within one allocation, or in pieces of
 * cuMemCreate that are mapped one behind the other. Host memory is
 * registered with transports that have an engine for it; deregister it before it is freed. */
SHUNT_API shunt_status shunt_register(shunt_comm comm, const void *memory, int64_t bytes);

/* Collective: shunt_register with a guarantee by the caller, by which large messages may
 * go through the GPUs' copy engines: whenever the receive memory of all_reduce,
 * all_gather, all_to_all, broadcast or scatter lies in this memory on one rank, it
 * lies in what all ranks registered together, at the same offset, on every rank; in
 * calls and in graphs. An all_reduce into it is in place on all ranks or on none. A call
 * that breaks the guarantee fails with SHUNT_MISMATCH on all ranks, which names two of
 * them, and other bytes of the memory may have been overwritten.
 * bytes are equal on all ranks. Where registrations overlap they do so alike on all ranks,
 * else the last one is SHUNT_UNSUPPORTED; of several, the last one that holds a call's
 * memory counts. Memory stays allocated until shunt_deregister. Windows of
 * shunt_window_create are symmetric without it, and memory that overlaps one is
 * SHUNT_INVALID_ARGUMENT. */
SHUNT_API shunt_status shunt_register_symmetric(shunt_comm comm, const void *memory, int64_t bytes);

/* Local: sets *address to where this rank's GPU reaches what corresponds to memory on
 * peer: the same offset in what all ranks registered together with
 * shunt_register_symmetric, or in a window. Kernels of the program may load and store
 * there until this rank deregisters that or frees the window. Since 1.1. */
SHUNT_API shunt_status shunt_peer_address(shunt_comm comm, const void *memory, int32_t peer, void **address);

/* Local: undoes one shunt_register_symmetric at, or one shunt_register of, the
 * memory there. Optional: memory that was registered plainly and is freed, and a
 * communicator that is closed, are forgotten by themselves. All ranks undo
 * shunt_register_symmetric between the same two collectives. */
SHUNT_API shunt_status shunt_deregister(shunt_comm comm, const void *memory);

/* ---- memory that peers map ----------------------------------------------- */

/* An allocator caches memory of its communicator's CUDA device that peers have mapped,
 * in segments of multiples of 2 MiB. Any thread may call its functions. They wait for no
 * GPU, but shunt_allocator_destroy, so a thread that frees never keeps a kernel waiting
 * that waits for it. All since 1.1. */

/* shunt_allocator_create: its memory is symmetric, as with shunt_register_symmetric, so
 * that large messages go through the GPUs' copy engines. Every rank makes the same calls
 * on it, in the same order and with the same bytes, streams corresponding; those that
 * grow or shrink it are collective. */
#define SHUNT_ALLOCATOR_SYMMETRIC 1u

typedef struct shunt_allocator_stats {
  size_t struct_size; /* sizeof(shunt_allocator_stats) */
  int64_t in_use;     /* bytes of allocated blocks */
  int64_t cached;     /* bytes of free blocks */
  int64_t peak;       /* most bytes that were in use at one time */
  int64_t blocks;     /* allocated */
  int64_t segments;   /* of the device's memory, which in_use and cached are in */
} shunt_allocator_stats;

/* Local: makes an allocator, without memory yet. All ranks make their symmetric ones in
 * the same order. segment_bytes is the least size of a segment, equal on all ranks if
 * symmetric; 0: 32 MiB. */
SHUNT_API shunt_status shunt_allocator_create(shunt_comm comm, uint32_t flags, int64_t segment_bytes,
                                              shunt_allocator *allocator);

/* Sets *memory to bytes (1 or more) of the device, aligned to 512 bytes and not zeroed,
 * for use in stream. Cached memory is reused at once in the stream that it was freed in,
 * in others after the work that was in that stream. An allocator without room grows, by
 * one segment; when the device has no memory, it gives its cached segments back and
 * tries again, and then returns SHUNT_OUT_OF_MEMORY with the bytes asked for, in use and
 * cached. Collective in a symmetric allocator that must grow; there it is an error
 * during a capture. What is allocated or freed during a capture of stream serves that
 * graph alone until the graph is gone. */
SHUNT_API shunt_status shunt_allocator_alloc(shunt_allocator allocator, int64_t bytes, void *stream, void **memory);

/* Gives memory of shunt_allocator_alloc back, after what is in stream by now, and in the
 * streams that were recorded on it. */
SHUNT_API shunt_status shunt_allocator_free(shunt_allocator allocator, void *memory, void *stream);

/* Makes the free of memory wait for what is in another stream by then; stream must exist
 * until then, and cannot be CU_STREAM_PER_THREAD: another thread may free. */
SHUNT_API shunt_status shunt_allocator_record_stream(shunt_allocator allocator, const void *memory, void *stream);

/* Grows the allocator unless it has that many bytes in one piece that nothing uses any
 * more; collective in a symmetric one. */
SHUNT_API shunt_status shunt_allocator_reserve(shunt_allocator allocator, int64_t bytes);

/* Gives the segments that nothing uses any more back to the device; collective in a
 * symmetric allocator. */
SHUNT_API shunt_status shunt_allocator_trim(shunt_allocator allocator);

/* Start from {sizeof(shunt_allocator_stats)}. */
SHUNT_API shunt_status shunt_allocator_get_stats(shunt_allocator allocator, shunt_allocator_stats *stats);

/* Two functions that allocate from the allocator and free there, for programs that take
 * plain ones, such as torch's CUDAPluggableAllocator: alloc returns NULL when it fails,
 * and for another device than the allocator's; free prints a failure on standard error.
 * shunt_last_error(NULL) says why. They are good until the allocator is destroyed. At
 * most 64 allocators of a process have such. */
typedef void *(*shunt_alloc_fn)(ptrdiff_t bytes, int device, void *stream);
typedef void (*shunt_free_fn)(void *memory, size_t bytes, int device, void *stream);
SHUNT_API shunt_status shunt_allocator_functions(shunt_allocator allocator, shunt_alloc_fn *alloc, shunt_free_fn *free);

/* Gives all memory back and ends the handle; waits up to two seconds for work on freed
 * memory. While blocks are allocated, or graphs exist that were captured with the
 * memory, it fails with SHUNT_INVALID_ARGUMENT or SHUNT_TIMEOUT and the allocator stays
 * usable; after SHUNT_DEVICE the handle has ended, but memory could not be given back.
 * An allocator outlives its communicator, but does not grow without it. Local; ranks that
 * still use the communicator destroy a symmetric one between the same two collectives. */
SHUNT_API shunt_status shunt_allocator_destroy(shunt_allocator allocator);

/* ---- windows ------------------------------------------------------------- */

/* Collective: bytes of zero-filled memory of this rank that every peer
 * reaches, on the communicator's device if its memory is CUDA's; *base is its
 * address here, which is valid until shunt_window_free or shunt_close. bytes must be
 * equal on all ranks. */
SHUNT_API shunt_status shunt_window_create(shunt_comm comm, int64_t bytes, shunt_window *window, void **base);

/* Local: a window of memory that the program has: bytes from memory on, an address that is
 * a multiple of 64 on every rank. They lie in one range that was registered with
 * shunt_register_symmetric, at the same offset on every rank that uses the window. The
 * first 4,096 bytes for every 32 ranks are the window's own, and must be zero on all ranks
 * before one of them signals or waits; *base is what follows. The memory stays registered
 * until shunt_window_free. Since 1.1. */
SHUNT_API shunt_status shunt_window_at(shunt_comm comm, void *memory, int64_t bytes, shunt_window *window, void **base);

/* Local: gives up this rank's part; no rank may use the window afterwards. The
 * handle is gone whatever the status. */
SHUNT_API shunt_status shunt_window_free(shunt_window window);

/* Writes count elements into peer's window, offset bytes from its start; offset is a
 * multiple of the element's size, here and below. */
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
