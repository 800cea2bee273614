/*
 * engine.h: what the interpreter works on. Go (program.go) writes programs in
 * these structs; the C files of this folder run them. Nothing here is an ABI.
 */
#ifndef SHUNT_EXECUTOR_ENGINE_H
#define SHUNT_EXECUTOR_ENGINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "shunt_ring.h"
#include "shunt_transport.h"

#define SX_CONTROL_BYTES 4096
#define SX_MESSAGES 64 /* messages of a pair and direction that a rank keeps note of */
#define SX_CALLS 64    /* collectives that a rank keeps note of */
#define SX_NUMBER_BITS 40 /* of a mark: those of the collective's number */
#define SX_CHUNK 16     /* table entries in a chunk: those of one endpoint */
#define SX_CHUNKS 4096  /* chunks in a table */
#define SX_BUDGET 4096  /* work between two looks at the clock, in steps or 4 KiB moved */

#if defined(__GNUC__)
#define SX_LIKELY(x) __builtin_expect(!!(x), 1)
#define SX_UNLIKELY(x) __builtin_expect(!!(x), 0)
#endif

/* ---- the control page ---------------------------------------------------- */

/* The operation that a rank runs, as it tells its peers. version is odd while
 * the fields change. Only the owner writes. */
typedef struct sx_record {
  _Atomic uint64_t version;
  _Atomic uint64_t seq;
  _Atomic uint64_t what;  /* collective | dtype << 32 */
  _Atomic uint64_t how;   /* op | root << 32 */
  _Atomic uint64_t count;
  _Atomic uint64_t ended; /* seq of the last operation that ended well */
} sx_record;

/* The last call that a rank rejected by itself, so that waiting ranks learn why. version is odd while the fields
 * change. Only the owner writes; only Go reads and writes it (rejection.go). */
typedef struct sx_rejection {
  _Atomic uint64_t version;
  _Atomic uint64_t seq;    /* that a collective would have had; 0: none that is counted */
  _Atomic uint64_t record; /* version of the record then */
  _Atomic uint64_t length; /* bytes of text */
  _Atomic uint64_t text[28];
} sx_rejection;

/* A collective that a rank has called; see mark.c. The n-th stands in entry
 * n % SX_CALLS. mark is 0 while the fields change. Only the owner writes. */
typedef struct sx_call {
  _Atomic uint64_t mark;
  _Atomic uint64_t what, how, count; /* as in sx_record */
} sx_call;

/* What a rank says about its messages to and from one other: the k-th of a direction stands in word k %
 * SX_MESSAGES, as message.go has it; then the same of the blocks that it gives and expects in collectives. */
typedef struct sx_messages {
  _Atomic uint64_t sent[SX_MESSAGES];
  _Atomic uint64_t received[SX_MESSAGES];
  _Atomic uint64_t given[SX_MESSAGES];
  _Atomic uint64_t expected[SX_MESSAGES];
} sx_messages;

/* One page that every rank maps. The doorbell's line is written only around sleep, so that peers can look at it for
 * the price of a cache hit; the record changes with every operation and lies two lines further. Where ranks keep note
 * of their messages an sx_messages for each rank follows, behind the page. */
typedef struct sx_control {
  _Atomic uint32_t doorbell; /* futex word: how often the owner was woken */
  _Atomic uint32_t sleeping; /* the owner sleeps, or is about to */
  _Atomic uint32_t cpu;      /* 1 + the processor that the owner was last seen on; 0: unknown */
  _Atomic uint32_t slept;    /* doorbell when the owner last went to sleep */
  uint8_t pad[112];
  sx_record record;
  uint8_t pad2[80];
  sx_rejection rejection;
  sx_call calls[SX_CALLS];
} sx_control;

_Static_assert(sizeof(sx_control) <= SX_CONTROL_BYTES, "a control page holds what is in it");

/* ---- programs ------------------------------------------------------------ */

/* What one compiled step does: steps of the plan, with set split by its
 * operation, structure turned into jumps, and barrier in two. */
enum {
  SX_MOV = 1, SX_ADD, SX_SUB, SX_MUL, SX_DIV, SX_MOD, SX_MIN, SX_MAX,
  SX_LT, SX_LE, SX_EQ, SX_NE, SX_SELECT,
  SX_LOAD,    /* dst register, a ref */
  SX_ADDRESS, /* dst register, a ref */
  SX_STORE,   /* dst ref, a register */
  SX_COPY,    /* dst ref, a ref, n register */
  SX_REDUCE,  /* dst ref, a first ref, b count, n register */
  SX_SIGNAL,  /* dst ref, a register, b register or SX_ABSENT */
  SX_WAIT,    /* a ref, b register, c register or SX_ABSENT */
  SX_ARRIVE,  /* dst ref, a ref, b register for the value, c register for the peer */
  SX_GATHER,  /* dst ref, b value, c peer: repeats itself until all peers arrived */
  SX_LOOP,    /* dst index, a counter, b limit, n register; c: step after the loop */
  SX_REPEAT,  /* dst index, a counter, b limit; c: first step of the body */
  SX_IF,      /* a register; c: step to go to when zero */
  SX_NATIVE,  /* a native, b count of arguments; SX_NATIVE_END follows */
  SX_NATIVE_END,
  SX_ARGUMENT_OF, /* a register, n: which argument of the step that follows */
  SX_REMOTE,  /* dst ref, a register, b count of arguments, c register for slots: posts; SX_WAIT_REMOTE follows */
  SX_WAIT_REMOTE,
  SX_END
};

#define SX_ABSENT UINT32_MAX

typedef struct sx_step {
  uint32_t code;
  uint32_t number; /* of the plan's step, for messages */
  uint32_t dst, a, b, c, n;
  uint32_t reserved;
} sx_step;

typedef struct sx_ref {
  uint32_t space;
  uint32_t region, rank, offset; /* registers of the track's frame; peer: region holds the address */
  uint32_t scale;                /* register or SX_ABSENT */
} sx_ref;

/* A slot that a track reads, and where it stands in the track's frame. */
typedef struct sx_fill {
  uint32_t to;
  uint32_t slot;
} sx_fill;

/* A track: its code and its frame, which holds only registers it uses. The first clear registers are zeroed at
 * launch, then fills are copied; the rest are constants that stay. */
typedef struct sx_code {
  uint32_t first_step;
  uint32_t first_fill, count_fills;
  uint32_t frame, frame_size, clear;
} sx_code;

struct sx_instance;

typedef struct sx_program {
  uint32_t base; /* first table entry of the endpoint's regions */
  uint32_t dtype, op, element;
  uint32_t count_tracks, count_registers, max_sources;
  uint32_t marked; /* a word for marks stands behind each semaphore; see mark.c */
  const sx_step *steps;
  const sx_ref *refs;
  const sx_fill *fills;
  const sx_code *tracks;
  const int64_t *registers; /* initial frames of all tracks */
  const shunt_native *natives;
  struct sx_instance *idle; /* instances that no launch uses */
} sx_program;

/* ---- a run ---------------------------------------------------------------- */

struct sx_launch;

typedef struct sx_track {
  const sx_step *at;
  int64_t *frame;
  struct sx_launch *launch;
  const sx_step *steps;
  /* what a blocked track waits for; word is null while it can run */
  const _Atomic int64_t *word;
  int64_t value;
  int32_t rank;  /* who is waited for, or -1 */
  uint32_t step; /* the waiting step's number */
  uint32_t remote; /* 0: word is a semaphore; SX_OF_COMMAND: done of one; SX_OF_NATIVE: ended */
  uint32_t taken; /* steps of this launch that a delay was considered for */
  shunt_ring *ring;
  shunt_ring_command *command;
  int64_t number; /* of the command */
  const shunt_native *native; /* whose request is polled, or null */
  void *request;
  _Atomic int64_t ended; /* 1: the request is done, with this status */
  shunt_status status;
} sx_track;

enum { SX_OF_COMMAND = 1, SX_OF_NATIVE };

typedef struct sx_source {
  const char *at;
  double factor;
  int scaled;
} sx_source;

/* The memory one launch needs; programs keep theirs for the next launch. */
typedef struct sx_instance {
  struct sx_instance *next;
  int64_t *registers;
  sx_track *tracks;
  sx_source *sources;
} sx_instance;

typedef struct sx_launch {
  sx_program *program;
  sx_instance *instance;
  char *send, *recv;
  int64_t send_bytes, recv_bytes;
  const int64_t *slots;  /* SHUNT_SLOT_ARRAYS entries */
  const int64_t *arrays; /* 4 * world entries, or null: zeros */
  uint32_t live;         /* tracks that have not ended */
  uint32_t index;        /* in the group */
  struct sx_launch *next; /* of the same lane */
  uint32_t lost;          /* a native function still uses the instance */
} sx_launch;

/* The description of a message that peers can read once its launch starts; see message.go. */
typedef struct sx_note {
  _Atomic uint64_t *word; /* or null */
  uint64_t value;
} sx_note;

/* How a run ended: well, or why it failed. */
enum {
  SX_FINE = 0,
  SX_FINE_TURN,   /* well, and Go's scheduler is due a turn: see turn.go */
  SX_PAUSED,      /* not yet: the caller's block limit is over; sx_resume continues */
  SX_ABORTED,     /* x: cause; rank: who */
  SX_TIMEOUT,     /* rank: who was waited for */
  SX_BOUNDS,      /* x: offset, y: bytes, z: length of what; space, region, rank */
  SX_NULL,        /* y: bytes; space, region, rank */
  SX_MISALIGNED,  /* x: offset; space, region, rank */
  SX_NO_REGION,   /* x: region */
  SX_NO_RANK,     /* x: rank */
  SX_LENGTH,      /* x: the length, negative or overflowing */
  SX_PARTIAL,     /* x: bytes of a scaled copy, y: element size */
  SX_NATIVE_FAILED, /* x: code */
  SX_NATIVE_STUCK,  /* y: nanoseconds that it has not returned for; x: 1 if it is a request that does not end */
  SX_MEMORY,      /* y: bytes */
  SX_BUSY,
  SX_CLOSED,
  SX_ARGUMENT,    /* x: send bytes, y: recv bytes */
  SX_NO_PROCESS,  /* rank */
  SX_DISAGREE,    /* rank: who called another collective, or -1 */
  SX_REMOTE_FAILED, /* x: code; rank; engine->message */
  SX_SLOTS,       /* x: commands of a ring */
  SX_DONE,        /* x: the number that a ring says is done, y: that of the command there */
  SX_PEER_READ,   /* x: errno, y: bytes, region: address; rank */
  SX_UNMAPPED     /* x: address, z: length of what; space, region, rank */
};

typedef struct sx_failure {
  uint32_t reason;
  int32_t launch, track, step;
  int32_t rank; /* waited for, or whose memory; -1: none */
  uint32_t space;
  int64_t region, x, y, z;
} sx_failure;

typedef struct sx_memory {
  char *base;
  _Atomic int64_t bytes;
} sx_memory;

/* One entry of the flight recorder; see flight.c. */
typedef struct sx_flight {
  _Atomic uint64_t number; /* of the operation; 0: empty, or in change */
  _Atomic uint64_t what, how, count; /* as in sx_record */
  _Atomic uint64_t begin, end;       /* ticks; end 0: still running */
  _Atomic uint64_t reason;
} sx_flight;

typedef struct sx_policy {
  uint32_t spins;      /* polls with a pause before the first yield */
  uint32_t yields;     /* yields before the first sleep */
  uint32_t slice_usec; /* longest sleep without looking at deadline and abort */
} sx_policy;

/* Delays between steps, for tests; see delay.c. */
typedef struct sx_delays {
  uint64_t steps;  /* that may be delayed: a bit for each code */
  uint64_t chance; /* of each, in 2^-32 */
  int64_t longest; /* nanoseconds */
  uint64_t seed;
  uint64_t operation; /* runs since delays were set */
  uint64_t count;     /* delays since then */
} sx_delays;

typedef struct sx_worker sx_worker; /* the thread of native steps; see native.c */

typedef struct sx_engine {
  /* Read on every wait, written once. 0, or 1 << 63 | cause << 32 | rank. */
  _Atomic uint64_t abort;
  int32_t rank, world;
  sx_policy policy;
  sx_control *own;       /* never null */
  sx_control **controls; /* of every rank, null where unknown */
  _Atomic(sx_memory *) *chunks;
  _Atomic int32_t *processes; /* of every rank, 0 where its memory cannot be read */
  int64_t grace;              /* nanoseconds that a failed read of a peer waits for an abort */

  /* Of the run in flight, its thread's alone. */
  int64_t deadline; /* of the run: nanoseconds from start; 0: none */
  int64_t started;  /* clock at the first look, or 0 */
  int64_t looked;   /* clock at the last look */
  int64_t slept;    /* nanoseconds slept since then at most */
  int64_t block_limit; /* nanoseconds from started after which a wait pauses the run; 0: never */
  uint64_t began;   /* ticks */
  uint64_t turn;    /* ticks when a run last returned SX_FINE_TURN */
  int32_t budget;   /* steps until the next look at the clock */
  uint32_t cpu;     /* as in the control page */
  uint64_t call;    /* mark of the collective; 0: the run is none */
  uint64_t mark;    /* the same where the program's semaphores carry marks, else 0 */
  uint32_t count_ring, ring_all;
  uint32_t *ring;      /* ranks to wake */
  uint8_t *ringing;    /* whether a rank is in ring */
  sx_track **live;
  uint32_t count_live, max_live;
  uint32_t delayed; /* delays are on */
  sx_failure failure;
  sx_launch single, *only; /* only: single, as a list of lanes */
  sx_launch **lanes;       /* of the run in flight */
  uint32_t count_lanes;
  sx_flight *flight; /* of the run in flight, or null */
  sx_flight *flights;
  uint32_t count_flights, next_flight;
  const sx_note *notes; /* of a group's launches, by index; null for a run of one */
  int64_t args[SHUNT_RING_ARGS]; /* of the step that comes next */
  char message[SHUNT_MAX_MESSAGE]; /* of a transport, for the failure */
  uint32_t polled;                 /* live tracks with a request */
  const sx_track *said;            /* whose request message is of */
  sx_worker *worker;    /* or null: made by the first native step */
  sx_delays delays;

  /* What other threads may look at or change. */
  _Alignas(64) _Atomic uint32_t state;
  _Atomic uint32_t looks;  /* seqlock of the next five; odd while they change */
  _Atomic int64_t waiting; /* clock since when the run waits, or 0 */
  _Atomic int32_t waiting_rank, waiting_step;
  const _Atomic int64_t *_Atomic waiting_word; /* and what it must reach */
  _Atomic int64_t waiting_value;
  _Atomic uint64_t native; /* how often start and poll were entered and left: odd while one runs */
  _Atomic uint32_t native_base; /* of the endpoint whose start or poll it was last */
  _Atomic int64_t native_deadline; /* of the run that it was in */
  sx_control private_page; /* until a control page is set */
  struct sx_engine *before, *after; /* in the list of all engines */
} sx_engine;

/* ---- engine.c -------------------------------------------------------------- */

sx_engine *sx_engine_new(int32_t rank, int32_t world);
/* Waits for the run in flight (abort it first), then refuses all others. */
void sx_engine_close(sx_engine *engine);
void sx_engine_free(sx_engine *engine);
void sx_engine_set_control(sx_engine *engine, int32_t rank, void *page);
/* 0, or -1 when memory ran out or the entry is out of range */
int sx_engine_set_region(sx_engine *engine, uint64_t entry, int32_t rank, void *base, int64_t bytes);
void sx_engine_clear_region(sx_engine *engine, uint64_t entry);
/* The memory of a rank's region, or null. */
void *sx_engine_region(sx_engine *engine, uint64_t base, int64_t region, int64_t rank, int64_t *bytes);
void sx_engine_set_process(sx_engine *engine, int32_t rank, int32_t pid);
void sx_engine_abort(sx_engine *engine, uint32_t cause, int32_t rank);
/* Nanoseconds that the run in flight has been waiting, or -1. */
int64_t sx_engine_waiting(sx_engine *engine, int32_t *rank, int32_t *step);
/* Returns whether the semaphore that Waiting names has not come up yet. Its memory must stay mapped during the
 * call. */
int sx_engine_unsatisfied(sx_engine *engine);
/* Which call of start or poll the run is in; 0 while it is in none. */
uint64_t sx_engine_native(sx_engine *engine, uint32_t *base, int64_t *deadline);
int64_t sx_clock(void);

/* Returns whether a semaphore has come to a value. By the signed difference, so that a counter may wrap. */
static inline int sx_reached(int64_t seen, int64_t value) { return (int64_t)((uint64_t)seen - (uint64_t)value) >= 0; }

/* ---- flight.c ---------------------------------------------------------------- */

static inline uint64_t sx_ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return (uint64_t)sx_clock();
#endif
}
int sx_flights_set(sx_engine *engine, uint32_t count); /* 0, or -1 without memory */
void sx_flight_begin(sx_engine *engine, const uint64_t *record);
void sx_flight_end(sx_engine *engine, uint32_t reason);

/* Ticks between two turns for Go's scheduler: 1.6 ms to 5 ms at 5 GHz to 1.5 GHz. */
#define SX_TURN 8000000

/* ---- mark.c ----------------------------------------------------------------- */

void sx_call_publish(sx_control *own, const uint64_t *record);
/* Returns whether a mark that a rank has left (-1: one of unknown origin) proves that
 * the rank has called other collectives than this one. */
int sx_contradicts(const sx_engine *engine, int64_t rank, uint64_t theirs);
/* Returns whether a rank's page proves it of the collective that this rank runs. */
int sx_page_contradicts(const sx_engine *engine, int64_t rank);

/* Returns whether the mark behind a semaphore that this rank has waited for proves it. */
static inline int sx_stray(const sx_engine *e, const _Atomic int64_t *semaphore, int64_t rank) {
  if (!e->mark) return 0;
  /* relaxed: the load of the semaphore has acquired what stood here when it was
   * raised; a later mark belongs to a later call, and has another number */
  uint64_t theirs = atomic_load_explicit((const _Atomic uint64_t *)semaphore + 1, memory_order_relaxed);
  return SX_UNLIKELY(theirs != e->mark) && sx_contradicts(e, rank, theirs);
}

/* Put this rank's mark behind a semaphore that it is about to raise. */
static inline void sx_leave_mark(const sx_engine *e, _Atomic int64_t *semaphore) {
  /* relaxed: the store of the semaphore releases it */
  if (e->mark) atomic_store_explicit((_Atomic uint64_t *)semaphore + 1, e->mark, memory_order_relaxed);
}

/* ---- run.c ------------------------------------------------------------------ */

/* Run one launch, or a group of them: lanes[i] is the first launch of a lane, notes
 * describe each.
 * sx_run takes addresses as numbers, because cgo would spend a fifth of a short
 * run on checking pointers. slots, arrays and lanes stay valid until the run has
 * ended; record, if not null, is {seq, what, how, count, number, mark}. With a block limit,
 * in nanoseconds, a run that waits for longer returns SX_PAUSED and stays in
 * flight until sx_resume, on any thread, has taken it to its end. The result is a
 * reason; details are in engine->failure. */
uint32_t sx_run(uintptr_t engine, uintptr_t program, uintptr_t send, uintptr_t recv, const int64_t *slots,
                const int64_t *arrays, int64_t deadline, int64_t block_limit, const uint64_t *record);
uint32_t sx_run_group(sx_engine *engine, sx_launch **lanes, uint32_t count, uint64_t tracks, const sx_note *notes,
                      int64_t deadline, int64_t block_limit, const uint64_t *record);
uint32_t sx_resume(sx_engine *engine, const uint64_t *record);
void sx_program_free(sx_program *program);

/* ---- interpret.c -------------------------------------------------------------- */

enum { SX_TRACK_ENDED, SX_TRACK_BLOCKED, SX_TRACK_FAILED };

/* Run a track until it ends, blocks or fails (engine->failure). */
int sx_interpret(sx_engine *engine, sx_track *track);
/* The same, with delays. */
int sx_interpret_delayed(sx_engine *engine, sx_track *track);
uint32_t sx_fail(sx_engine *engine, const sx_track *track, uint32_t reason);
/* Pay for work, in steps or 4 KiB moved: SX_FINE or why to stop. */
uint32_t sx_spend(sx_engine *engine, const sx_track *track, int32_t work);

/* ---- remote.c ----------------------------------------------------------------- */

/* The size of a ring, or -1. */
int64_t sx_remote_bytes(int64_t slots);
/* Post a command, and note its number; null when no slot is free. One that is done holds its slot as long as it is
 * unread: what it came to stands there. */
typedef int (*sx_unread)(const void *of, const shunt_ring_command *command);
shunt_ring_command *sx_ring_post(shunt_ring *ring, uint32_t slots, int64_t operation, const int64_t *args,
                                 uint32_t count, int64_t *number, sx_unread unread, const void *of);
/* Post a command for a track, whose arguments are the engine's: 1, or 0 when no slot is
 * free; then the track's command is one to wait for. */
int sx_remote_post(sx_engine *engine, sx_track *track, shunt_ring *ring, uint32_t slots, int64_t operation,
                   uint32_t count);
/* The rank that the track's command waits for, or -1. */
int32_t sx_remote_peer(const sx_engine *engine, const sx_track *track);
/* Ends the track's command, which is done: 0, or -1 after recording why it failed. */
int sx_remote_end(sx_engine *engine, sx_track *track);
/* Sleep until a ring of the live tracks or the doorbell, last seen as given, is raised;
 * 0 at once if no track waits for a command. */
int sx_remote_sleep(sx_engine *engine, uint32_t seen, int64_t nanoseconds, int (*ready)(sx_engine *));

/* ---- native.c ----------------------------------------------------------------- */

/* Run a native step: 0, or -1 after recording why not. */
int sx_native(sx_engine *engine, sx_track *track, const shunt_native *native);
void sx_worker_dismiss(sx_engine *engine);
/* Start a request: 1 if it is to be polled, 0 if it is done. */
int sx_native_start(sx_engine *engine, sx_track *track, const shunt_native *native, uint32_t count);
/* Poll the requests of all live tracks. */
void sx_native_poll(sx_engine *engine);
/* Ends the track's native code, which is done: 0, or -1 after recording why it failed. */
int sx_native_end(sx_engine *engine, sx_track *track);
/* End all requests of a run that has failed: SX_FINE, or SX_NATIVE_STUCK after recording it. */
uint32_t sx_native_stop(sx_engine *engine);

/* ---- wait.c ------------------------------------------------------------------- */

/* Block until a live track's wait is satisfied, or until the block limit is over: then
 * SX_PAUSED, with nothing changed. */
uint32_t sx_wait(sx_engine *engine);
/* Wake the ranks that signals since the last call have named, if they sleep. */
void sx_ring(sx_engine *engine);
/* Tell peers which processor this thread runs on. */
void sx_here(sx_engine *engine);
/* Look at the abort word and the clock: SX_FINE or why to stop. */
uint32_t sx_look(sx_engine *engine, const sx_track *track);
/* Sleep until the run is aborted or late, at most engine->grace: SX_FINE when neither came. */
uint32_t sx_await_abort(sx_engine *engine, const sx_track *track);
/* Sleep until the doorbell rings or nanoseconds have passed. */
void sx_rest(sx_engine *engine, int64_t nanoseconds);
void sx_doorbell(sx_control *control);
void sx_futex_wake(void *word);

/* ---- delay.c ------------------------------------------------------------------- */

/* Delay a track before a step, perhaps: SX_FINE or why to stop. */
uint32_t sx_delay(sx_engine *engine, sx_track *track, const sx_step *step);

/* ---- copy.c -------------------------------------------------------------------- */

void sx_copy(char *dst, const char *src, int64_t bytes);

/* ---- peer.c -------------------------------------------------------------------- */

/* Copy n > 0 bytes from space peer; 0, or -1 after recording why not, or 1 if the kernel cannot write to dst. */
int sx_peer_read(sx_engine *engine, sx_track *track, const sx_ref *from, char *dst, int64_t n);

#endif
