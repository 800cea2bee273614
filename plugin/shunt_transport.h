/*
 * shunt_transport.h: the contract between Shunt's host and its transports, as
 * a C ABI. It says in C what transport.go and plan.go say in Go, in the same
 * order and with the same names; proto/transport.proto says it for a process.
 *
 * A transport is a shared object that defines one symbol,
 *
 *     const shunt_transport_v1 shunt_transport_v1_table;
 *
 * and is never unloaded. Nothing may throw, panic, exit or longjmp across these
 * functions: catch it inside, and return SHUNT_INTERNAL. Strings are UTF-8 and
 * zero-terminated. C90, C++11 and later compile this header. A source file includes
 * this header or shunt.h, not both: each has a shunt_request of its own.
 *
 * A transport whose language runtime starts on a thread of its own (Go) also
 * defines
 *
 *     void shunt_transport_v1_ready(void);
 *
 * which returns when the runtime runs and the table is filled in. The host
 * calls it once, before it reads more of the table than its version.
 */
#ifndef SHUNT_TRANSPORT_H
#define SHUNT_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "shunt_tables.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHUNT_TRANSPORT_SYMBOL "shunt_transport_v1_table"
#define SHUNT_TRANSPORT_READY_SYMBOL "shunt_transport_v1_ready"
#define SHUNT_TRANSPORT_MAGIC UINT64_C(0x315854544e554853) /* "SHUNTTX1" in memory order */
/* A host rejects another major version, and versions before 1.1, whose plans number slots otherwise. */
#define SHUNT_VERSION_MAJOR 1
#define SHUNT_VERSION_MINOR 1

#define SHUNT_MAX_WORLD 1024
#define SHUNT_MAX_ALGORITHMS 32
#define SHUNT_MAX_REGIONS 16
#define SHUNT_MAX_NAME 64
#define SHUNT_MAX_HANDLE_DATA 256
#define SHUNT_MAX_PUBLISHED 2048
#define SHUNT_MAX_MESSAGE 512

/* ---- transport.go ------------------------------------------------------ */

/* One operation as every rank sees it. rank is for prepare only; supports
 * must not look at it. */
typedef struct shunt_request {
  uint32_t struct_size;
  shunt_collective collective;
  shunt_dtype dtype;
  shunt_op op;
  int64_t bytes; /* of one rank's message: count times element size; for varying counts the
                    largest pair's, where known, else 0 */
  int32_t world;
  int32_t hosts; /* distinct hosts among the ranks */
  shunt_memory_kind memory;
  int32_t rank;
  uint32_t peer_read; /* 1: every rank can read every other rank's memory, so
                         plans may use SHUNT_SPACE_PEER. Older hosts send a
                         struct that ends before it: struct_size tells. */
  uint32_t reserved;  /* 0 */
  uint32_t symmetric; /* 1: the receive memory of every rank lies at one offset
                         of memory that all ranks registered as symmetric and
                         that all have mapped, and is equally long everywhere:
                         plans may use SHUNT_SPACE_PEER_RECV. The callers
                         guarantee that the offsets are equal, a plan should
                         check it (SHUNT_SLOT_WINDOW, SHUNT_SLOT_OFFSET). Older hosts
                         send a struct that ends before it. */
  uint32_t device_counts; /* 1: counts and displacements of all_to_all_v lie in
                         device memory, where a kernel reads them when it runs:
                         SHUNT_SLOT_ARRAYS holds where. Only asked of transports
                         with SHUNT_FEATURE_DEVICE_COUNTS. A kernel takes no
                         count that is negative or reaches past
                         SHUNT_SLOT_SEND_BYTES and SHUNT_SLOT_RECV_BYTES. Older
                         hosts have padding of zeros in its place. */
  uint32_t nvlink;    /* 1: every two GPUs of the ranks are joined by NVLink, or
                         are one. What is stored at a peer otherwise goes over
                         PCIe, which may tear lines apart. Older hosts send a
                         struct that ends before it. */
} shunt_request;

/* How far results of a reduction may be from those of the tables. */
#define SHUNT_NUMERICS_TABLES 0    /* they are the same */
#define SHUNT_NUMERICS_REORDERED 1 /* the order in which float32 or float64 are added or
                                      multiplied may differ */
#define SHUNT_NUMERICS_OWN 2       /* also NaN, infinities, subnormal numbers, what is
                                      rounded and how often */

/* A named way to do one collective; cost = latency + bytes / bandwidth. */
typedef struct shunt_algorithm {
  char name[SHUNT_MAX_NAME]; /* a-z, 0-9, _-.+, and / within it, with a zero behind: as in SHUNT_ALGO */
  int64_t min_bytes;
  int64_t max_bytes; /* 0: no limit */
  double latency;    /* microseconds */
  double bandwidth;  /* bytes per microsecond */
  uint32_t numerics; /* what may differ from the tables' results in this reduction: one of
                        SHUNT_NUMERICS_*. What may differ runs where nothing else can,
                        where the user names it, or by cost where the option
                        SHUNT_NUMERICS allows it. */
  uint32_t reserved; /* 0 */
} shunt_algorithm;

/* In count of shunt_support: supports itself failed, and reason says why. */
#define SHUNT_SUPPORTS_FAILED UINT32_MAX

/* The result of supports: algorithms, best first, or a reason. The host zeroes
 * it before the call. */
typedef struct shunt_support {
  uint32_t struct_size;
  uint32_t count;
  shunt_algorithm algorithms[SHUNT_MAX_ALGORITHMS];
  char reason[SHUNT_MAX_MESSAGE];
} shunt_support;

typedef struct shunt_option {
  const char *name;
  const char *value;
} shunt_option;

typedef struct shunt_open_config {
  uint32_t struct_size;
  shunt_memory_kind memory;
  uint64_t communicator; /* equal on all ranks, unique within a job */
  int32_t rank;
  int32_t world;
  int32_t device; /* CUDA ordinal, or -1 */
  uint32_t count_options;
  const shunt_option *options; /* SHUNT_<NAME>_<KEY>, by KEY in lower case; valid during the call */
  uint32_t max_sms;            /* multiprocessors that kernels may occupy at
                                  once, equal on all ranks; 0: the transport
                                  decides. Older hosts send a struct that ends
                                  before it. */
  uint32_t reserved;           /* 0 */
} shunt_open_config;

/* Lets a peer map a region. fd is owned by the maker of the handle; the
 * receiver duplicates it. generation is never 0. The descriptor of kind memfd is
 * a memfd that is, or can be, sealed against shrinking; other files are refused. */
typedef struct shunt_handle {
  shunt_handle_kind kind;
  int32_t fd; /* -1: none */
  uint64_t generation;
  int64_t offset; /* of the region within what the handle maps */
  int64_t bytes;  /* of what the handle maps */
  uint32_t data_bytes;
  uint8_t data[SHUNT_MAX_HANDLE_DATA];
} shunt_handle;

typedef struct shunt_region {
  uint32_t id;
  shunt_region_role role;
  shunt_memory_kind memory;
  uint32_t reserved;
  int64_t bytes;
  shunt_handle handle;
} shunt_region;

/* What a rank has published in an exchange. */
typedef struct shunt_published {
  const void *data; /* null where bytes is 0 */
  uint64_t bytes;   /* at most SHUNT_MAX_PUBLISHED */
} shunt_published;

/* ---- watch_page.go ------------------------------------------------------- */

/* The watch page, to which SHUNT_SPACE_ABORT points: pinned host memory of one
 * communicator on one device. The first line is the host's: kernels look at it
 * while they wait long. The others are the kernels'. */
typedef struct shunt_watch_page {
  uint32_t abort; /* not 0 once the communicator is aborted */
  uint32_t reserved;
  uint64_t timeout; /* nanoseconds a wait may last; 0: no limit */
  uint8_t line0[48];
  uint32_t fault;       /* why a kernel gave up: 1 aborted, 2 timeout, 3 asymmetric, 4 length, 5 counts,
                         * 6 engine step (the host's own), 7 another call; written last, the first one stays */
  int32_t fault_peer;   /* rank that was waited for, or differs */
  uint64_t fault_epoch; /* value that was waited for */
  uint64_t fault_own[3];    /* asymmetric: this rank's range, offset of its receive memory there, and bytes,
                             * with bit 62 set where send memory is the same and all ranks must agree on that;
                             * length: the bytes that it expects of a message;
                             * counts: the count and displacement for fault_peer, in elements, and 0 for
                             * send memory, 1 for receive memory, 2 for what this rank sends to itself;
                             * another call: a word of this rank's call, from the top the collective in 5 bits,
                             * the op in 4, the dtype in 4, the root in 3 (what it does not have is 0), 4 bits
                             * of the transport's own, and the bytes in 44 */
  uint64_t fault_theirs[3]; /* and what the peer has instead; counts: elements that there is room for, or
                             * that this rank receives from itself */
  uint64_t missed;       /* an address of the caller's that the directory lacks; any later one replaces it */
  uint64_t missed_bytes; /* and how many bytes of it a kernel would have needed */
  uint8_t line2[48];
} shunt_watch_page;

/* ---- buffer_table.go ------------------------------------------------------ */

#define SHUNT_DIRECTORY_EXPORTS 128

/* An allocation of this rank in a region of role directory. */
typedef struct shunt_directory_entry {
  uint64_t base;
  uint64_t bytes; /* 0: unused */
  uint64_t known; /* bit r is set once rank r has entered its mapping */
  uint64_t generation;
} shunt_directory_entry;

/* A region of role directory tells kernels which of the caller's buffers peers
 * can reach without staging. The host writes an export before any kernel can
 * need it, an import before the exporter's bit, and takes a bit back before it
 * unmaps. Of this kernels only read. Behind it stands, for each rank of the world,
 * where that rank's exports are mapped here: uint64_t[SHUNT_DIRECTORY_EXPORTS];
 * behind them a shunt_directory_counts. */
typedef struct shunt_directory {
  shunt_directory_entry exports[SHUNT_DIRECTORY_EXPORTS];
} shunt_directory;

/* The kernels' counters, by which the host learns, without a call and while graphs are
 * replayed, that nothing uses a withdrawn buffer any more. All start at 0 and only grow.
 * A launch of one block, or one whose blocks each look for themselves, may leave out
 * decided and forgotten. */
typedef struct shunt_directory_counts {
  uint64_t begun;     /* blocks that are about to read entries; raised before they do */
  uint64_t decided;   /* findings of a launch, at most two, that blocks which begin later will use */
  uint64_t ended;     /* blocks that have ended, as have the accesses of peers to this rank's memory
                       * for them; never raised by one that has given up a wait */
  uint64_t forgotten; /* findings that are not used any more: all blocks of their launch have begun */
  uint64_t reserved[4];
  uint64_t used[SHUNT_DIRECTORY_EXPORTS]; /* how often each export was found */
} shunt_directory_counts;

/* ---- plan.go ------------------------------------------------------------ */

#define SHUNT_NONE 0xFFFFu

/* In operand b of a launch step: the kernel waits for what is before it in the
 * stream before it touches memory (griddepcontrol.wait,
 * cudaGridDependencySynchronize), so that it may be scheduled earlier. Only behind
 * that wait may it let the next one be scheduled (griddepcontrol.launch_dependents,
 * cudaTriggerProgrammaticLaunchCompletion): else all that a graph has of such kernels
 * would hold the GPU while the first one waits for a peer. */
#define SHUNT_LAUNCH_DEPENDENT 1u

typedef struct shunt_ref {
  shunt_space space;
  uint16_t region; /* register holding the region's number, or the address of peer memory */
  uint16_t rank;   /* register holding the rank */
  uint16_t offset; /* register holding the offset in bytes */
  uint16_t scale;  /* register holding a float64's bits, or SHUNT_NONE */
} shunt_ref;

/* See shunt_step_kind for what the operands mean. */
typedef struct shunt_step {
  shunt_step_kind kind;
  shunt_alu alu;
  uint16_t dst;
  uint16_t a;
  uint16_t b;
  uint16_t c;
  uint16_t n;
} shunt_step;

typedef struct shunt_track {
  uint16_t first;
  uint16_t count;
} shunt_track;

typedef struct shunt_kernel {
  const char *image;
  const char *name;
  uint16_t grid[3];  /* registers */
  uint16_t block[3]; /* registers */
  uint16_t shared;   /* register, or SHUNT_NONE */
  uint16_t first_arg;
  uint16_t count_args;
} shunt_kernel;

typedef struct shunt_arg {
  uint16_t ref;   /* or SHUNT_NONE */
  uint16_t value; /* or SHUNT_NONE */
  uint16_t bytes; /* 1, 2, 4 or 8 */
} shunt_arg;

/* What native code says of itself; start and poll get it with peer as they left it. */
#define SHUNT_NATIVE_TEXT 320
typedef struct shunt_native_report {
  int32_t peer;                    /* 1 + the rank that is waited for or has failed; 0: none */
  char message[SHUNT_NATIVE_TEXT]; /* one sentence, where the status is no success */
} shunt_native_report;

/* function(context, registers, send, recv, stream, report). It returns a code of
 * shunt_tables.h, and fills in the report if it fails; any other code becomes
 * SHUNT_INTERNAL. Without a stream it runs on a thread of the host's own, and the run
 * ends without it at the deadline; with one, on the caller's thread, with the device's
 * context current: it enqueues. */
typedef shunt_status (*shunt_native_fn)(void *context, const int64_t *registers, const void *send, void *recv,
                                        void *stream, shunt_native_report *report);

#define SHUNT_PENDING ((shunt_status)-1) /* of start and poll: not done yet */

/* Start an operation of an engine; poll it. Neither ever blocks. On CUDA memory both are called on
 * a thread of the host's own, without a current context, when the stream has come to the step; send
 * and recv are addresses of the device, and neither synchronizes with it. start
 * returns SHUNT_PENDING after setting *request, or the status of what is done already; args
 * are the step's, valid until it returns. poll is called, on any thread, one call at a time,
 * until it returns another status than SHUNT_PENDING; then the request is the engine's
 * again. Between two calls the host looks at abort and deadline. stop is not 0 when the run
 * is over without the operation: the engine lets go of the caller's memory and returns any
 * status as soon as it has; the host waits a second for it. */
typedef shunt_status (*shunt_start_fn)(void *context, const int64_t *args, uint32_t count, const void *send,
                                       void *recv, void **request, shunt_native_report *report);
typedef shunt_status (*shunt_poll_fn)(void *context, void *request, int32_t stop, shunt_native_report *report);

/* Either function, or start and poll. */
typedef struct shunt_native {
  shunt_native_fn function;
  void *context;
  shunt_start_fn start;
  shunt_poll_fn poll;
} shunt_native;

/* A template of one operation for one rank. Registers: slots (9 scalars and
 * 4 * world: SHUNT_SLOT_ARRAYS + 4 * world), then consts, then temps. Owned by the
 * endpoint that prepared it until free_plan, which the host calls as soon as it has
 * copied the plan. What contexts of natives point to lives until close. */
typedef struct shunt_plan {
  uint32_t struct_size;
  shunt_collective collective;
  shunt_dtype dtype;
  shunt_op op;
  int32_t world;
  int32_t rank;
  uint32_t count_consts, count_temps, count_refs, count_steps, count_tracks;
  uint32_t count_kernels, count_args, count_natives;
  const int64_t *consts;
  const shunt_ref *refs;
  const shunt_step *steps;
  const shunt_track *tracks;
  const shunt_kernel *kernels;
  const shunt_arg *args;
  const shunt_native *natives;
} shunt_plan;

/* A device code image that launch steps name. */
typedef struct shunt_image {
  const char *name;
  const void *data;
  uint64_t bytes;
} shunt_image;

/* Memory of the caller's: an allocation, or as much of one as its allocator has mapped. */
typedef struct shunt_memory {
  uint64_t address;
  int64_t bytes;
  shunt_memory_kind kind;
  uint32_t reserved; /* 0 */
  uint64_t generation; /* tells two allocations at one address apart; never 0 */
} shunt_memory;

/* ---- the table ----------------------------------------------------------- */

typedef struct shunt_endpoint shunt_endpoint; /* the transport's own */

/* Functions are called on threads of the host's, each time on any of them, and for several
 * endpoints at once. Every one returns within the host's deadline: its thread is lost
 * otherwise, and what it was called for fails. Every one but supports may fail; it then returns a
 * code and leaves one sentence for last_error (open and close: in message, at most message_bytes
 * with the terminating zero). Functions on one endpoint are called one at a time. */
typedef struct shunt_transport_v1 {
  uint64_t magic;         /* SHUNT_TRANSPORT_MAGIC */
  uint32_t version_major; /* SHUNT_VERSION_MAJOR */
  uint32_t version_minor; /* SHUNT_VERSION_MINOR */
  uint64_t struct_size;   /* sizeof(shunt_transport_v1) */
  shunt_feature features;

  const char *name; /* a-z, 0-9 and _, at most SHUNT_MAX_NAME bytes */
  const char *version;
  const char *doc;
  const shunt_memory_kind *memory;
  uint32_t count_memory;
  uint32_t max_world; /* largest world that it serves; 0: SHUNT_MAX_WORLD */

  void (*supports)(const shunt_request *request, shunt_support *support);
  /* *endpoint is ignored after a failure: what open has made until then it frees itself. */
  shunt_status (*open)(const shunt_open_config *config, shunt_endpoint **endpoint,
                       char *message, size_t message_bytes);
  /* *regions stays owned by the endpoint, as do its descriptors. */
  shunt_status (*regions)(shunt_endpoint *endpoint, const shunt_region **regions, uint32_t *count);
  /* Device images; may be null if no plan launches kernels. */
  shunt_status (*images)(shunt_endpoint *endpoint, const shunt_image **images, uint32_t *count);
  /* allocate and free may be null without SHUNT_FEATURE_BUFFERS. */
  shunt_status (*allocate)(shunt_endpoint *endpoint, uint32_t id, int64_t bytes, shunt_region *region);
  shunt_status (*free)(shunt_endpoint *endpoint, uint32_t id);
  /* prepare and free_plan may be null without SHUNT_FEATURE_PLANS. The dtype of a
   * collective that only moves bytes is canonical: uint8, float16, int32 or int64,
   * one for each element size. Plans of one endpoint may run concurrently within a
   * group, for different peers or directions, so counters of send and recv belong
   * to one peer and one direction. */
  shunt_status (*prepare)(shunt_endpoint *endpoint, const shunt_request *request,
                          const char *algorithm, const shunt_plan **plan);
  void (*free_plan)(shunt_endpoint *endpoint, const shunt_plan *plan);
  /* Valid until the next call on the endpoint; never null. */
  const char *(*last_error)(shunt_endpoint *endpoint);
  /* The endpoint is gone afterwards, also after a failure. */
  shunt_status (*close)(shunt_endpoint *endpoint, char *message, size_t message_bytes);
  /* publish and connect may be null without SHUNT_FEATURE_EXCHANGE. They exchange
   * bytes of the ranks' endpoints, such as unique ids, worker addresses or remote
   * keys: when all ranks have opened theirs (request and algorithm are null), and
   * for each plan before all ranks prepare it. Both are called on all ranks, in the
   * same order, and a failure on one is every rank's error. Where plans are prepared
   * together, publish is called for all of them before connect.
   * publish leaves what every rank is to get of this one; it stays the endpoint's
   * and valid until the next call. It talks to no peer. */
  shunt_status (*publish)(shunt_endpoint *endpoint, const shunt_request *request,
                          const char *algorithm, shunt_published *published);
  /* connect gets what every rank has published, count = world in rank order, this
   * rank's own included; valid during the call. It may talk to peers, for at most
   * timeout nanoseconds, and until abort is called. */
  shunt_status (*connect)(shunt_endpoint *endpoint, const shunt_request *request, const char *algorithm,
                          const shunt_published *published, uint32_t count, int64_t timeout);
  /* May be null. The communicator has failed or was aborted: a connect that waits for peers, and
   * what was begun for its plans in threads of the transport's own, is of no use any more and
   * should end soon. Called while other functions may run on the endpoint, at most once; returns
   * at once. */
  void (*abort)(shunt_endpoint *endpoint, const char *reason);
  /* May be null. What has failed between calls, as work on a stream goes on when no call is
   * inside the endpoint: SHUNT_OK, or a status and the report filled in. Called a few
   * times a second, while other functions run, until close; for CUDA memory. Returns at once. */
  shunt_status (*check)(shunt_endpoint *endpoint, shunt_native_report *report);
  /* May be null without SHUNT_FEATURE_REGISTRATION. Both are local to a rank, and may take milliseconds; the
   * report takes one sentence about a failure.
   * register_memory tells of the caller's memory before the first operation that uses it is enqueued, never while
   * that operation's stream is captured; on host memory, of what users have registered. It leaves a key of the
   * endpoint's choice. Ranges may overlap. Memory that was mapped anew at one address has another generation, and
   * is registered after the earlier one was deregistered. With SHUNT_UNSUPPORTED, or when it does not return in
   * time, this endpoint is asked no more, after another failure not for this memory; the operation runs all the
   * same. Only abort and check may run meanwhile.
   * deregister_memory ends a registration that no operation and no graph uses any more; the memory may be gone
   * already. It may run beside all functions but register_memory and close. After SHUNT_TIMEOUT it is called
   * again. */
  shunt_status (*register_memory)(shunt_endpoint *endpoint, const shunt_memory *memory, uint64_t *key,
                                  shunt_native_report *report);
  shunt_status (*deregister_memory)(shunt_endpoint *endpoint, uint64_t key, shunt_native_report *report);
} shunt_transport_v1;

#ifdef __cplusplus
/* A constant of C++ is not exported unless it was declared so. */
extern
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const shunt_transport_v1 shunt_transport_v1_table;
}
#endif

#endif
