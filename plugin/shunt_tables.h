/* Code generated from plugin/tables.json by gentables. DO NOT EDIT. */
#ifndef SHUNT_TABLES_H
#define SHUNT_TABLES_H

#include <stdint.h>

/* Code says what kind of failure an error is. Zero is success. */
typedef int32_t shunt_status;
enum {
  SHUNT_OK = 0, /* success */
  SHUNT_INVALID_ARGUMENT = 1, /* an argument is null, misaligned, negative, overflowing or of the wrong kind */
  SHUNT_UNSUPPORTED = 2, /* no transport can do this; the message says why each one cannot */
  SHUNT_MISMATCH = 3, /* ranks disagree about the operation, its dtype, count, root or order */
  SHUNT_TIMEOUT = 4, /* a deadline passed; the message names the rank that was waited for */
  SHUNT_PEER_DIED = 5, /* a peer rank's process ended or its connection was lost */
  SHUNT_PLUGIN_DIED = 6, /* a transport's process ended or does not respond */
  SHUNT_ABORTED = 7, /* the communicator was aborted, here or on a peer */
  SHUNT_CLOSED = 8, /* the communicator, endpoint or handle is closed */
  SHUNT_OUT_OF_MEMORY = 9, /* memory, file descriptors or another limit ran out */
  SHUNT_SYSTEM = 10, /* a system call failed; the message carries errno */
  SHUNT_PROTOCOL = 11, /* bytes from another process are malformed or not authentic */
  SHUNT_PLUGIN_REJECTED = 12, /* a plugin could not be loaded; the message says what is wrong with it */
  SHUNT_FORKED = 13, /* the process forked after Shunt started; use spawn or forkserver */
  SHUNT_DEVICE = 14, /* the accelerator or its driver reported an error */
  SHUNT_INTERNAL = 15 /* a bug in Shunt or in a transport */
};

/* DType is the type of one element. Values equal ncclDataType_t. */
typedef uint32_t shunt_dtype;
enum {
  SHUNT_DTYPE_INT8 = 0, /* 8-bit signed integer */
  SHUNT_DTYPE_UINT8 = 1, /* 8-bit unsigned integer */
  SHUNT_DTYPE_INT32 = 2, /* 32-bit signed integer */
  SHUNT_DTYPE_UINT32 = 3, /* 32-bit unsigned integer */
  SHUNT_DTYPE_INT64 = 4, /* 64-bit signed integer */
  SHUNT_DTYPE_UINT64 = 5, /* 64-bit unsigned integer */
  SHUNT_DTYPE_FLOAT16 = 6, /* IEEE 754 binary16; reductions accumulate in float32 */
  SHUNT_DTYPE_FLOAT32 = 7, /* IEEE 754 binary32 */
  SHUNT_DTYPE_FLOAT64 = 8, /* IEEE 754 binary64 */
  SHUNT_DTYPE_BFLOAT16 = 9, /* bfloat16; reductions accumulate in float32 */
  SHUNT_DTYPE_FLOAT8_E4M3 = 10, /* OCP FP8 E4M3 (no infinity, saturating); reductions accumulate in float32 */
  SHUNT_DTYPE_FLOAT8_E5M2 = 11 /* OCP FP8 E5M2; reductions accumulate in float32 */
};

/* Op is a reduction operation. Values equal ncclRedOp_t. Integer sums and products wrap; avg of integers truncates
   toward zero; min and max return NaN if any input is NaN. */
typedef uint32_t shunt_op;
enum {
  SHUNT_OP_SUM = 0, /* sum of all ranks */
  SHUNT_OP_PROD = 1, /* product of all ranks */
  SHUNT_OP_MAX = 2, /* maximum of all ranks */
  SHUNT_OP_MIN = 3, /* minimum of all ranks */
  SHUNT_OP_AVG = 4, /* sum divided by the world size */
  /* sum of each rank's data times that rank's scalar; the product is rounded to the dtype before it is summed */
  SHUNT_OP_PREMUL_SUM = 5
};

/* Collective is an operation that a communicator offers. */
typedef uint32_t shunt_collective;
enum {
  SHUNT_COLL_ALL_REDUCE = 0, /* reduce count elements over all ranks; every rank gets the result */
  SHUNT_COLL_REDUCE = 1, /* reduce count elements over all ranks; root gets the result */
  SHUNT_COLL_BROADCAST = 2, /* root's count elements go to every rank */
  SHUNT_COLL_ALL_GATHER = 3, /* count elements of every rank, in rank order, to every rank */
  SHUNT_COLL_ALL_GATHER_V = 4, /* as all_gather, with a count and displacement for each rank */
  SHUNT_COLL_REDUCE_SCATTER = 5, /* reduce world*count elements; rank r gets block r of count elements */
  SHUNT_COLL_REDUCE_SCATTER_V = 6, /* as reduce_scatter, with a count and displacement for each rank */
  SHUNT_COLL_ALL_TO_ALL = 7, /* block r of count elements goes to rank r */
  SHUNT_COLL_ALL_TO_ALL_V = 8, /* as all_to_all, with counts and displacements for each peer, both ways */
  SHUNT_COLL_GATHER = 9, /* count elements of every rank, in rank order, to root */
  SHUNT_COLL_GATHER_V = 10, /* as gather, with a count and displacement for each rank */
  SHUNT_COLL_SCATTER = 11, /* root's block r of count elements goes to rank r */
  SHUNT_COLL_SCATTER_V = 12, /* as scatter, with a count and displacement for each rank */
  SHUNT_COLL_SEND = 13, /* count elements to one peer, matched in order by its recv */
  SHUNT_COLL_RECV = 14, /* count elements from one peer, matched in order by its send */
  SHUNT_COLL_BARRIER = 15, /* no rank leaves before every rank has entered */
  SHUNT_COLL_PUT = 16, /* write into a peer's window */
  SHUNT_COLL_GET = 17, /* read from a peer's window */
  SHUNT_COLL_SIGNAL = 18, /* raise this rank's counter at a peer's window after earlier puts are visible there */
  SHUNT_COLL_WAIT = 19 /* wait until a peer has raised its counter at this rank's window the given number of times */
};

/* MemoryKind says where bytes live. */
typedef uint32_t shunt_memory_kind;
enum {
  SHUNT_MEMORY_HOST = 0, /* host memory, reached by CPU loads and stores */
  SHUNT_MEMORY_CUDA = 1 /* memory of a CUDA device */
};

/* HandleKind says how a peer maps a region. */
typedef uint32_t shunt_handle_kind;
enum {
  SHUNT_HANDLE_NONE = 0, /* not exported */
  SHUNT_HANDLE_MEMFD = 1, /* a file descriptor for mmap */
  SHUNT_HANDLE_CUDA_VMM = 2, /* a POSIX file descriptor from cuMemExportToShareableHandle */
  SHUNT_HANDLE_CUDA_IPC = 3 /* a cuIpcMemHandle (64 bytes of data) and an offset from the allocation's base */
};

/* Feature is a bit of what a transport can do. */
typedef uint64_t shunt_feature;
/* allocates regions that every peer maps; the host's generic algorithms run over the region of role scratch */
#define SHUNT_FEATURE_MEMORY UINT64_C(1)
#define SHUNT_FEATURE_PLANS UINT64_C(2) /* returns plans of its own for some collectives */
#define SHUNT_FEATURE_BUFFERS UINT64_C(4) /* allocates buffers for users (windows, one-sided operations) */
#define SHUNT_FEATURE_MULTI_HOST UINT64_C(8) /* reaches ranks on other hosts */
/* its messages carry their length: a plan of recv never takes a message of another length; it waits until its
   deadline */
#define SHUNT_FEATURE_LENGTHS UINT64_C(16)
/* its plans of all_to_all_v take counts and displacements from device memory where Request.device_counts holds */
#define SHUNT_FEATURE_DEVICE_COUNTS UINT64_C(32)
/* behind every semaphore that its plans of collectives signal or wait for, a word is left to the host, which tells by
   it that ranks have called different ones */
#define SHUNT_FEATURE_MARKS UINT64_C(64)
/* its endpoints exchange bytes of their own when a communicator is made and before each plan is prepared: publish and
   connect */
#define SHUNT_FEATURE_EXCHANGE UINT64_C(128)
/* needs GPUs that reach each other's memory, where there is more than one rank on CUDA memory */
#define SHUNT_FEATURE_PEER_ACCESS UINT64_C(256)
/* needs a GPU for each rank on CUDA memory; SHUNT_SHARE_GPU lets ranks share one */
#define SHUNT_FEATURE_OWN_GPU UINT64_C(512)
/* the host registers the caller's memory with its endpoints before plans touch it, and deregisters it afterwards;
   builtin and shared carriers only */
#define SHUNT_FEATURE_REGISTRATION UINT64_C(1024)

/* RegionRole says what a region that an endpoint publishes is for. */
typedef uint32_t shunt_region_role;
enum {
  SHUNT_ROLE_PRIVATE = 0, /* laid out and used by the transport's own plans alone */
  SHUNT_ROLE_SCRATCH = 1, /* zero-filled, at the disposal of the host's generic algorithms */
  SHUNT_ROLE_BUFFER = 2, /* allocated for a user */
  SHUNT_ROLE_DIRECTORY = 3, /* the users' buffers that peers reach directly, entered by the host: a shunt_directory */
  /* memory of this rank's own, which no peer maps and whose size may differ: a ring of commands, in host memory with a
     memfd, and what they work on, there or in CUDA memory with a cuda_vmm handle */
  SHUNT_ROLE_LOCAL = 4,
  /* CUDA memory that the host makes, zero-filled, when an operation first needs it: without a handle, behind region 0
     and the deferred regions before it in the address space, in multiples of 2 MiB */
  SHUNT_ROLE_DEFERRED = 5
};

/* Space says which memory a Ref points into. */
typedef uint16_t shunt_space;
enum {
  SHUNT_SPACE_SEND = 0, /* the caller's send memory, SlotSendBytes long */
  SHUNT_SPACE_RECV = 1, /* the caller's receive memory, SlotRecvBytes long */
  SHUNT_SPACE_REGION = 2, /* region number [region] of rank [rank] */
  /* memory of rank [rank]'s process, at the address [region] that this rank published; only where Request.peer_read
     holds, and only as the source of a copy */
  SHUNT_SPACE_PEER = 3,
  /* the communicator's watch page, a shunt_watch_page, as kernels see it: it begins with the abort word; only as a
     kernel argument */
  SHUNT_SPACE_ABORT = 4,
  /* the receive memory of rank [rank], as long as this rank's; only where Request.symmetric holds, to copy to and from
     and as a kernel argument */
  SHUNT_SPACE_PEER_RECV = 5
};

/* StepKind is the kind of one step of a plan. */
typedef uint16_t shunt_step_kind;
enum {
  SHUNT_STEP_SET = 1, /* registers: dst = alu(a, b, c) */
  SHUNT_STEP_LOAD = 2, /* register dst = 64-bit word at ref a (acquire) */
  /* 64-bit word at ref dst = register a (plain; for words only this rank reads, or that a later signal publishes) */
  SHUNT_STEP_STORE = 3,
  SHUNT_STEP_COPY = 4, /* register n bytes from ref a to ref dst */
  SHUNT_STEP_REDUCE = 5, /* register n elements: ref dst = op over refs a..a+b-1, in that order */
  /* semaphore at ref dst = register a (release, system scope), then wake rank [register b], or every rank if b is
     none */
  SHUNT_STEP_SIGNAL = 6,
  /* until semaphore at ref a is at least register b, by signed difference (acquire); register c, if not none, holds the
     rank that is waited for */
  SHUNT_STEP_WAIT = 7,
  /* raise the counter word at ref a (this rank's private word), publish it at ref dst (own semaphore), wait for the
     same semaphore of every rank */
  SHUNT_STEP_BARRIER = 8,
  SHUNT_STEP_LOOP = 9, /* repeat the next b steps [register n] times; register dst holds the index 0, 1, … */
  SHUNT_STEP_IF = 10, /* skip the next b steps if register a is zero */
  /* kernel a of the plan with its grid, block and arguments, on the stream; b is 1 (LaunchDependent) if the kernel
     itself waits for what is before it there, else 0 */
  SHUNT_STEP_LAUNCH = 11,
  /* call native function a of the plan in this address space (builtin and shared carriers only), with the values of
     arguments b..b+n-1 if it is one that starts and is polled */
  SHUNT_STEP_NATIVE = 12,
  /* post command [register a] with the values of arguments b..b+n-1 to the ring of [register c] commands at ref dst,
     then wait until the plugin has done it; see shunt_ring.h */
  SHUNT_STEP_REMOTE = 13,
  /* register dst = address of ref a, in send or receive memory, in this process; for a peer to copy from (space
     peer) */
  SHUNT_STEP_ADDRESS = 14
};

/* Alu is the operation of a set step, on signed 64-bit registers. Arithmetic wraps; div and mod by zero give zero. */
typedef uint16_t shunt_alu;
enum {
  SHUNT_ALU_MOV = 0, /* a */
  SHUNT_ALU_ADD = 1, /* a + b */
  SHUNT_ALU_SUB = 2, /* a - b */
  SHUNT_ALU_MUL = 3, /* a * b */
  SHUNT_ALU_DIV = 4, /* a / b */
  SHUNT_ALU_MOD = 5, /* a % b */
  SHUNT_ALU_MIN = 6, /* the smaller of a and b */
  SHUNT_ALU_MAX = 7, /* the larger of a and b */
  SHUNT_ALU_LT = 8, /* a < b */
  SHUNT_ALU_LE = 9, /* a <= b */
  SHUNT_ALU_EQ = 10, /* a == b */
  SHUNT_ALU_NE = 11, /* a != b */
  SHUNT_ALU_SELECT = 12 /* a != 0 ? b : c */
};

/* Slot is a register that the host fills at launch. Slots come first in the register file; the four arrays follow the
   scalars, world entries each, in bytes. */
typedef uint16_t shunt_slot;
enum {
  SHUNT_SLOT_COUNT = 0, /* elements, as the caller gave them */
  /* count times the element size; where Request.device_counts holds, the bytes that a count of 1 in device memory
     stands for, which is not 0 */
  SHUNT_SLOT_BYTES = 1,
  SHUNT_SLOT_ROOT = 2, /* the root, or the peer of send, recv, put, get, signal and wait; 0 for all others */
  SHUNT_SLOT_SCALAR = 3, /* premul_sum: this rank's scalar, the bits of a float64 */
  SHUNT_SLOT_SEND_BYTES = 4, /* length of the send memory */
  SHUNT_SLOT_RECV_BYTES = 5, /* length of the receive memory */
  /* one-sided operations: region number of the window; symmetric requests: number of the symmetric range, alike on all
     ranks */
  SHUNT_SLOT_WINDOW = 6,
  /* one-sided operations: byte offset in the peer's window; wait: the value waited for; symmetric requests: byte offset
     of the receive memory in the symmetric range */
  SHUNT_SLOT_OFFSET = 7,
  /* how far the stream's priority is above the default's of 0, as for work that is to overtake what runs beside it; 0:
     not above, not in a stream, or unknown. A rank's own matter, unlike counts: ranks may differ in it, so no plan may
     choose by it what peers have to do alike */
  SHUNT_SLOT_PRIORITY = 8,
  /* first of the arrays: send counts, send displacements, receive counts, receive displacements; where
     Request.device_counts holds the first entry of each is instead the device address of that array, of world int64 in
     units of the slot bytes, or 0 for displacements that are packed in rank order */
  SHUNT_SLOT_ARRAYS = 9
};

#endif
