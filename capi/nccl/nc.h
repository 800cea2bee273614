/*
 * nc.h: what the files of the NCCL-compatible library share.
 *
 * An ncclComm_t that a program holds points to one of our struct ncclComm, which has Shunt's communicator, the real
 * NCCL's, or both (forward.c). The real library never sees ours, and nothing here follows a pointer that is not one of
 * ours.
 */
#ifndef NC_H
#define NC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "shunt.h"
#include "symbols_gen.h"
#include "types.h"

enum nc_state {
  NC_FREE,
  NC_PENDING,   /* being made, perhaps by a thread of ours */
  NC_READY,     /* may be used */
  NC_FINALIZED, /* good for ncclCommDestroy */
  NC_FAILED,    /* could not be made: result and text say why */
  NC_CLOSING,
};

struct nc_op { /* an operation of ncclRedOpCreatePreMulSum */
  double scalar;
  ncclDataType_t dtype;
  bool used;
  bool in_real, only_real; /* the real NCCL has it too, or alone, under this number: */
  ncclRedOp_t real;
};

struct nc_ring; /* watch.c: the latest calls that went to the real NCCL */

struct ncclComm {
  _Atomic(enum nc_state) state;
  _Atomic int jobs;     /* splits, shrinks and registrations of it that have not ended: it cannot be used */
  _Atomic int children; /* splits and shrinks of it whose end its children do not say yet; never fewer than in jobs */
  _Atomic int queued;   /* of all these, and of what makes it, what waits for the end of a thread's open group */
  _Atomic(shunt_comm) shunt; /* NULL: the real NCCL serves it */
  ncclComm_t real;           /* NULL: Shunt serves it; beside shunt it serves what SHUNT_NCCL_FORWARD gives it */
  int rank, world, device;
  int max_sms; /* 0: SHUNT_MAX_SMS */
  bool blocking;
  atomic_bool revoked;
  atomic_bool settled; /* it has failed, and the program has gone on with a shrink */
  int32_t cancel;          /* ends its initialization when set */
  int32_t cancel_children; /* ends what is being made of it when set */
  ncclResult_t result;
  pthread_mutex_t lock; /* of what follows, and of the end of PENDING */
  pthread_cond_t changed;
  ncclComm_t parent; /* while it is being made of that one, which outlives this; else NULL */
  ncclComm_t *out;   /* what the program gets it in when the real NCCL has made it; else NULL */
  const void *group; /* nc_real_group, where it is made in one that has not ended; else NULL */
  struct nc_op *ops;
  int op_count;
  struct nc_ring *ring;
  char text[512]; /* the last failure */
};

/* ---- comms.c --------------------------------------------------------------- */

enum { NC_COMMUNICATORS = 4096 };
extern struct ncclComm nc_comms[NC_COMMUNICATORS] __attribute__((visibility("hidden")));

/* nc_hand_out gives the program the children that the real library has made by now, and returns whether parent has one
 * that it still makes. With failed, those of parent that are not there will not come, or, if parent is NULL, those of
 * this thread's group, which ends. */
bool nc_hand_out(ncclComm_t parent, bool failed);

/* nc_is_ours: whether a pointer is the place of a communicator. It is not followed. */
static inline bool nc_is_ours(ncclComm_t comm) {
  uintptr_t at = (uintptr_t)comm - (uintptr_t)nc_comms;
  return at < sizeof nc_comms && at % sizeof nc_comms[0] == 0;
}

/* nc_is_ready: whether Shunt can run an operation on it now. */
static inline bool nc_is_ready(ncclComm_t comm) {
  return nc_is_ours(comm) && atomic_load_explicit(&comm->state, memory_order_acquire) == NC_READY &&
         comm->shunt != NULL && atomic_load_explicit(&comm->jobs, memory_order_relaxed) == 0;
}

/* nc_is_finalized: whether Shunt runs nothing new on it, but what was called before, and takes back what it gave. */
static inline bool nc_is_finalized(ncclComm_t comm) {
  return nc_is_ours(comm) && atomic_load(&comm->state) == NC_FINALIZED && comm->shunt != NULL;
}

/* nc_any_real is the real NCCL's communicator, if there is one. */
static inline ncclComm_t nc_any_real(ncclComm_t comm) {
  return nc_is_ours(comm) && atomic_load_explicit(&comm->state, memory_order_acquire) != NC_FREE
             ? __atomic_load_n(&comm->real, __ATOMIC_ACQUIRE) : NULL;
}

/* nc_only_real is the real NCCL's communicator, if that alone serves this one. */
static inline ncclComm_t nc_only_real(ncclComm_t comm) {
  ncclComm_t real = nc_any_real(comm);
  return real != NULL && comm->shunt == NULL ? real : NULL;
}

/* nc_enter_real is the real communicator beside Shunt's for a call that SHUNT_NCCL_FORWARD gives it, else NULL.
 * nc_group_enters takes the real NCCL into this thread's group, if there is one. */
ncclComm_t nc_enter_real(ncclComm_t comm, enum nc_symbol symbol);
ncclComm_t nc_group_enters(ncclComm_t comm);
ncclComm_t nc_find_real_op(ncclComm_t comm, ncclComm_t real, ncclRedOp_t *op);

/* nc_real_of is the real NCCL's communicator, if that serves this call. */
static inline ncclComm_t nc_real_of(ncclComm_t comm, enum nc_symbol symbol) {
  ncclComm_t real = nc_any_real(comm);
  if (__builtin_expect(real == NULL, 1) || comm->shunt == NULL)
    return real;
  return nc_enter_real(comm, symbol);
}

/* nc_real_with_op is nc_real_of for a reduction; *op becomes the real NCCL's number. */
static inline ncclComm_t nc_real_with_op(ncclComm_t comm, enum nc_symbol symbol, ncclRedOp_t *op) {
  ncclComm_t real = nc_real_of(comm, symbol);
  if (__builtin_expect((unsigned)*op < NC_BUILTIN_OPS, 1) || !nc_is_ours(comm) || comm->shunt == NULL)
    return real;
  return nc_find_real_op(comm, real, op);
}

ncclComm_t nc_allocate(void);
void nc_release(ncclComm_t comm);
/* nc_drop releases what could not be made, unless another thread is ending it. */
void nc_drop(ncclComm_t comm);
/* nc_settle waits until a communicator is no longer being made, and others no longer of it. What has not begun, in an
 * open group, is not waited for: it may never come. */
void nc_settle(ncclComm_t comm);

/* nc_reject says why a communicator cannot be used; nc_reject_alone for a call that belongs to no group. */
ncclResult_t nc_reject(ncclComm_t comm, const char *function);
ncclResult_t nc_reject_alone(ncclComm_t comm, const char *function);

/* ---- errors.c -------------------------------------------------------------- */

/* nc_fail leaves a text for ncclGetLastError, of the thread and, unless it is NULL, of the communicator. Inside a
 * group, ncclGroupEnd will return the first result. */
ncclResult_t nc_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* nc_fail_alone is nc_fail for what belongs to no group. */
ncclResult_t nc_fail_alone(ncclComm_t comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* nc_recall makes the communicator's last failure this thread's, and returns its result. */
ncclResult_t nc_recall(ncclComm_t comm);
/* nc_shunt_failed is nc_fail with the text that Shunt has left in this thread. */
ncclResult_t nc_shunt_failed(ncclComm_t comm, shunt_status status);
/* nc_came is behind each call of the real library whose result the program gets: of a failure it has the text. */
ncclResult_t nc_came(ncclComm_t comm, ncclResult_t result);
ncclResult_t nc_result_of(shunt_status status);
/* A line in the form of Shunt's log, if SHUNT_LOG shows that level. */
void nc_log(const char *level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* nc_unserved fails a call that needs a communicator, for what Shunt does not do; nc_not_served, any call, with its
 * communicator or NULL. */
ncclResult_t nc_not_served(ncclComm_t comm, enum nc_symbol symbol);
ncclResult_t nc_unserved(ncclComm_t comm, enum nc_symbol symbol);

/* ---- report.c -------------------------------------------------------------- */

/* nc_report_use tells the launcher that the program has made a communicator. */
void nc_report_use(void);

/* ---- config.c -------------------------------------------------------------- */

struct nc_settings {
  bool forward; /* SHUNT_NCCL_FORWARD=all: the real NCCL serves everything */
  bool pairs;   /* else: it serves some functions, in a communicator beside Shunt's */
  bool listed;  /* collectives or windows are among them */
  bool given[NC_SYMBOLS]; /* these */
  char value[96];         /* of the variable, for messages */
  char bad[256];          /* what is wrong with it; "" if nothing is */
  shunt_memory_kind memory;
  int64_t timeout_ms;
};
const struct nc_settings *nc_settings(void);
/* nc_check_settings fails if SHUNT_NCCL_FORWARD cannot be read. */
ncclResult_t nc_check_settings(void);
/* nc_read_config copies what this library knows of a program's config; defaults for NULL. */
ncclResult_t nc_read_config(const ncclConfig_t *given, ncclConfig_t *config, const char *function);
/* nc_with_config checks the last argument of ncclAllReduceConfig and the like. */
ncclResult_t nc_with_config(ncclComm_t comm, const ncclCollConfig_t *config, enum nc_symbol symbol);

/* ---- forward.c ------------------------------------------------------------- */

/* nc_read_forward reads SHUNT_NCCL_FORWARD. */
void nc_read_forward(const char *value, struct nc_settings *settings);
/* nc_meet is the end of making a communicator of Shunt's: the ranks compare what they give to the real NCCL, and make
 * its communicator beside Shunt's if they cannot wait with that. Collective. */
ncclResult_t nc_meet(ncclComm_t comm);
/* nc_real_or_make is nc_real_of for a function that Shunt does not have: it may make the real NCCL's communicator now,
 * which is collective. NULL: nc_unserved says why. */
ncclComm_t nc_real_or_make(ncclComm_t comm, enum nc_symbol symbol);
/* nc_make_failure is why this thread's last nc_real_or_make could not make it; success if it did not try. */
ncclResult_t nc_make_failure(void);

/* ---- group.c --------------------------------------------------------------- */

/* One piece of work that meets other ranks, and may have to run beside others of this thread: it makes or changes
 * communicators. run returns its result and frees the job's arguments. */
struct nc_job {
  struct nc_job *next;
  struct nc_job *then; /* runs behind this one in its thread: the next job of the same parent */
  ncclResult_t (*run)(struct nc_job *);
  ncclComm_t comm;   /* the one to be made; NULL: none */
  ncclComm_t parent; /* whose jobs it counts in until left, and whose children to its end if derives; NULL: none */
  bool left, derives;
  ncclComm_t *out;   /* set to NULL if it fails while the program waits; NULL: none */
  bool blocking;
  ncclResult_t result;
  pthread_t thread;
  char text[512];
  /* the arguments */
  ncclUniqueId id;
  int color, key, count;
  int32_t *ranks;
  bool abort;
  void *memory;
  size_t size;
  ncclWindow_t *window; /* set to NULL, and the window is forgotten, if the registration fails; NULL: it is none */
};
/* nc_submit runs a job: here and now, in a thread, or at the end of this thread's group. */
ncclResult_t nc_submit(struct nc_job *job);

/* nc_leave_parent is the end of a job for its parent, which may be used again. */
void nc_leave_parent(struct nc_job *job);

/* nc_group_holds: whether all that a communicator waits for are jobs of this thread's group, which run before the
 * group's operations, so that it takes more. */
bool nc_group_holds(ncclComm_t comm);
/* nc_can_queue is nc_is_ready for what a group may have beside its jobs. */
static inline bool nc_can_queue(ncclComm_t comm) {
  return __builtin_expect(nc_is_ready(comm), 1) || nc_group_holds(comm);
}
/* nc_group_makes: whether a job of this thread's group makes the communicator, or runs on it. */
bool nc_group_makes(ncclComm_t comm);

/* nc_real_group is this thread's open group of the real NCCL, where that serves everything; NULL: there is none. */
const void *nc_real_group(void);

/* nc_group_failed tells this thread's group, if there is one, of a call's failure and why; it returns the failure. */
ncclResult_t nc_group_failed(ncclResult_t result, const char *text);
/* nc_queue puts an operation into this thread's group. */
ncclResult_t nc_queue(ncclComm_t comm, const shunt_operation *operation);

/* ---- ops.c, memory.c ------------------------------------------------------- */

ncclResult_t nc_find_op(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t dtype, shunt_operation *operation,
                        const char *function);
bool nc_is_window(ncclWindow_t window);
void nc_drop_window(ncclWindow_t *window);
void nc_forget_windows(ncclComm_t comm);

#endif
