/*
 * layout.h: what host and kernels agree on: the argument block of every kernel
 * and the layout of a rank's region. Plain C, so the host side can include it
 * too. Nothing here may depend on CUDA.
 *
 * A region is memory of one rank that every peer maps. It starts zero-filled.
 * All counters in it only grow, and all of them are advanced by kernels: no
 * epoch is ever a kernel argument, so eager calls and graph replays mix.
 */
#ifndef SHUNT_CUDAIPC_LAYOUT_H
#define SHUNT_CUDAIPC_LAYOUT_H

#ifdef __CUDACC_RTC__ /* the compiler of the images has no C library */
#include <cuda/std/cstdint>
#else
#include <stdint.h>
#endif

#define SHUNT_MAX_RANKS 8    /* ranks of one host that a kernel can name */
#define SHUNT_MAX_BLOCKS 64  /* largest grid; below the SM count of every GPU served */
#define SHUNT_MAX_THREADS 512
#define SHUNT_MAX_EXPORTS 128 /* allocations of one rank that peers can reach directly */
#define SHUNT_MAX_WARPS (SHUNT_MAX_THREADS / 32)

/* Argument block of every kernel, by value. Addresses are device addresses as
 * the launching rank's GPU sees them. */
typedef struct shunt_kernel_args {
  uint64_t send;    /* caller's send memory; may be 0 when nothing is sent */
  uint64_t recv;    /* caller's receive memory; may be 0 when nothing is received */
  int64_t bytes;    /* one rank's message, a multiple of the element size */
  double scalar;    /* premul_sum: this rank's factor */
  uint64_t abort;   /* shunt_watch, in pinned host memory as a rule; 0: none */
  uint64_t timeout; /* nanoseconds a wait may last; 0: what the watch says */
  int32_t rank;
  int32_t world;
  uint8_t op;       /* shunt_op */
  uint8_t fenced;   /* 1: lines do not arrive whole, as over PCIe, see ll128.cuh; alike on all ranks */
  uint16_t what;    /* what is called, as call.cuh has it; alike on all ranks but of send and recv */
  int32_t root;     /* root, or peer of send and recv; all_reduce_staged: see width.cuh */
  uint64_t region[SHUNT_MAX_RANKS]; /* every rank's region, mapped here; own at [rank] */
} shunt_kernel_args;

/* A count and displacement per peer, in bytes. */
typedef struct shunt_messages {
  int64_t send_count[SHUNT_MAX_RANKS];
  int64_t send_displ[SHUNT_MAX_RANKS];
  int64_t recv_count[SHUNT_MAX_RANKS];
  int64_t recv_displ[SHUNT_MAX_RANKS];
} shunt_messages;

/* Argument block of the kernels with messages of any length. */
typedef struct shunt_kernel_args_v {
  shunt_kernel_args base;
  shunt_messages messages;
} shunt_kernel_args_v;

/* Argument block of the kernel that reads counts and displacements from device
 * memory: addresses of int64 for each rank, in elements. Displacements may be 0:
 * packed in rank order. Nothing may reach past the capacities. */
typedef struct shunt_kernel_args_on_device {
  shunt_kernel_args base;
  uint64_t send_counts;
  uint64_t send_displs;
  uint64_t recv_counts;
  uint64_t recv_displs;
  int64_t element;       /* bytes */
  int64_t send_capacity; /* elements that there is room for at base.send */
  int64_t recv_capacity; /* and at base.recv */
} shunt_kernel_args_on_device;

/* shunt_collective, as far as kernels ask. */
enum { SHUNT_CALL_REDUCE_SCATTER_V = 6 };

/* What a wait was for when it was given up; the first one stays. */
enum {
  SHUNT_FAULT_NONE = 0,
  SHUNT_FAULT_ABORTED = 1, /* the abort word was raised */
  SHUNT_FAULT_TIMEOUT = 2, /* args.timeout passed */
  SHUNT_FAULT_ASYMMETRIC = 3, /* the receive memory lies elsewhere on a peer than symmetric memory should */
  SHUNT_FAULT_LENGTH = 4, /* a peer sends a message of another length than this rank receives */
  SHUNT_FAULT_COUNTS = 5, /* a count or displacement in device memory cannot be */
  SHUNT_FAULT_CALL = 7    /* a peer does another call than this rank; 6 is none of a kernel's */
};
typedef struct shunt_fault {
  uint32_t kind;
  int32_t peer;   /* rank that was waited for */
  uint64_t epoch; /* value that was waited for */
} shunt_fault;

/* How host and kernels talk while kernels run: the page that the contract calls
 * the abort word (plugin/watch_page.go). Kernels look at the first line while they
 * wait long, and tell in the others what the host has to know. */
typedef struct shunt_watch {
  uint32_t abort;        /* not 0 once the communicator is aborted */
  uint32_t reserved;
  uint64_t timeout;      /* nanoseconds a wait may last; 0: no limit */
  uint8_t line0[48];
  shunt_fault fault;     /* as at SHUNT_OFF_FAULT; kind is written last */
  /* SHUNT_FAULT_ASYMMETRIC: this rank's range, offset and bytes of its receive memory, with bit 62 set where send
   * memory is the same, if that matters; SHUNT_FAULT_LENGTH: bytes; SHUNT_FAULT_COUNTS: count and displacement in
   * elements, and 0 for send memory, 1 for receive memory, 2 for what this rank sends to itself; SHUNT_FAULT_CALL: the
   * word of call.cuh */
  uint64_t fault_own[3];
  /* and those of the peer; SHUNT_FAULT_COUNTS: elements that there is room for, or that this rank receives from
   * itself */
  uint64_t fault_theirs[3];
  uint64_t missed;       /* an address that was not exported */
  uint64_t missed_bytes; /* and how many bytes of it a kernel would have needed */
  uint8_t line2[48];
} shunt_watch;

/* What the watch page said when a wait on this GPU last looked at it, for the other waits. */
typedef struct shunt_watched {
  uint64_t at;      /* nanoseconds, when that was */
  uint64_t timeout; /* as in the page */
} shunt_watched;

/* An allocation of this rank that peers may reach directly. A kernel searches
 * its own table for the buffer it was given; known has bit r set once rank r
 * has mapped it and entered the mapping in its imports. Peers are told to go
 * direct only when all bits are set, so an exporter that wants to withdraw an
 * allocation clears known first. */
typedef struct shunt_export {
  uint64_t base;
  uint64_t bytes; /* 0: unused */
  uint64_t known;
  uint64_t generation;
} shunt_export;

/* How many of a kernel's blocks work, where ranks agree on that from call to call; see kernels/width.cuh. */
typedef struct shunt_width {
  uint32_t blocks; /* in the call that runs or comes next; 0: all */
  uint32_t next;   /* in the one after it, by what its ranks have told */
  uint32_t ended;  /* blocks of the call that runs */
} shunt_width;

/* What kernels count, so that the host knows when nothing uses what it has withdrawn.
 * A block counts itself as begun before it reads an export, and as ended when no peer
 * reaches this rank's memory for it any more. Blocks that begin later use what an earlier
 * one has found: that is decided by the first and forgotten by the last to be done. */
typedef struct shunt_counts {
  uint64_t begun;
  uint64_t decided;
  uint64_t ended;
  uint64_t forgotten;
  uint64_t reserved[4];
  uint64_t used[SHUNT_MAX_EXPORTS]; /* decisions for each export */
} shunt_counts;

/* Protocol classes. Each has slots and epochs of its own, because what makes
 * reusing a slot safe holds only among calls that use the class alike. */
enum { SHUNT_CLASS_LL, SHUNT_CLASS_LL128, SHUNT_CLASS_DIRECT, SHUNT_CLASS_STAGED, SHUNT_CLASS_FORWARD, SHUNT_CLASSES };

/* The kernels that a gate stands before: those that meet, those that stage at once, and those in LL128. */
enum { SHUNT_GATE_DIRECT, SHUNT_GATE_STAGED, SHUNT_GATE_LL128, SHUNT_GATES };

#define SHUNT_LL_BLOCK_BYTES (SHUNT_MAX_THREADS * 16) /* one packet a thread */
#define SHUNT_RING 8                                  /* slots of 512 bytes that a warp cycles through in LL128 */
#define SHUNT_LL128_WARP_BYTES (SHUNT_RING * 512)
#define SHUNT_LL128_BLOCK_BYTES (SHUNT_MAX_WARPS * SHUNT_LL128_WARP_BYTES)
/* that a block stages at a peer at once; among two ranks twice that, for their link needs 8 MiB under way */
#define SHUNT_CHUNK_BYTES 16384
#define SHUNT_STAGE_BYTES(world) ((world) == 2 ? 2 * SHUNT_CHUNK_BYTES : SHUNT_CHUNK_BYTES)
#define SHUNT_STAGES 4          /* chunks of a block on their way to one peer */
#define SHUNT_CHANNEL_BLOCKS 16 /* blocks that serve one ordered pair of ranks */
#define SHUNT_CHANNEL_LANES (2 * SHUNT_CHANNEL_BLOCKS * SHUNT_MAX_WARPS) /* a warp serves up to two */

/* Offsets within a region. */
#define SHUNT_OFF_FAULT 0
#define SHUNT_OFF_WATCHED 128 /* shunt_watched */
#define SHUNT_OFF_EPOCH 4096 /* [class][block]: a u64, and one that is not 0 once a wait was given up */
#define SHUNT_EPOCH_BYTES 16
#define SHUNT_OFF_SENT (SHUNT_OFF_EPOCH + SHUNT_CLASSES * SHUNT_MAX_BLOCKS * SHUNT_EPOCH_BYTES)
                                         /* [peer][lane] u64: units sent to peer */
#define SHUNT_CHANNEL_WORDS (SHUNT_MAX_RANKS * SHUNT_CHANNEL_LANES)
#define SHUNT_OFF_RECEIVED (SHUNT_OFF_SENT + SHUNT_CHANNEL_WORDS * 8) /* same shape: units consumed from peer */
/* same shape, written by peer: units of ours it has consumed */
#define SHUNT_OFF_CREDIT (SHUNT_OFF_RECEIVED + SHUNT_CHANNEL_WORDS * 8)
/* [block][peer] u64, written by peer: direct calls it has finished */
#define SHUNT_OFF_DONE (SHUNT_OFF_CREDIT + SHUNT_CHANNEL_WORDS * 8)
/* [block][peer] 64 bytes, written by peer */
#define SHUNT_OFF_HELLO (SHUNT_OFF_DONE + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* [block][peer] 16 bytes, written by peer: where its data may go */
#define SHUNT_OFF_OFFER (SHUNT_OFF_HELLO + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 64)
/* [block][peer] u64: offers made to peer */
#define SHUNT_OFF_OFFERED (SHUNT_OFF_OFFER + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 16)
/* same shape: offers taken from peer */
#define SHUNT_OFF_ACCEPTED (SHUNT_OFF_OFFERED + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* same shape, written by peer: offers of ours it has filled */
#define SHUNT_OFF_LANDED (SHUNT_OFF_ACCEPTED + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* [block][peer] u64, written by peer: chunks it has staged here */
#define SHUNT_OFF_STAGED (SHUNT_OFF_LANDED + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* same shape, written by peer: chunks of ours it is done with */
#define SHUNT_OFF_TAKEN (SHUNT_OFF_STAGED + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* same shape, written by peer: chunks it has stored here to be passed on */
#define SHUNT_OFF_FORWARD (SHUNT_OFF_TAKEN + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* u64: an address that was not exported */
#define SHUNT_OFF_MISSED (SHUNT_OFF_FORWARD + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 8)
/* two u64 and a u32 in the rest of that line: what the blocks of the kernel that runs have found of send and recv, and
 * how many of them are done */
#define SHUNT_OFF_CHOICE (SHUNT_OFF_MISSED + 8)
#define SHUNT_OFF_WIDTH (SHUNT_OFF_CHOICE + 24) /* shunt_width, the rest of the line */
#define SHUNT_OFF_SIGNAL (SHUNT_OFF_MISSED + 64) /* [peer] u64, written by peer: one-sided signals raised here */
/* [peer] u64: signals this rank has raised at peer */
#define SHUNT_OFF_SIGNALED (SHUNT_OFF_SIGNAL + SHUNT_MAX_RANKS * 8)
#define SHUNT_OFF_WAITED (SHUNT_OFF_SIGNALED + SHUNT_MAX_RANKS * 8) /* [peer] u64: signals of peer consumed here */
/* [peer] u64, written by peer: chunks that its copy engines have delivered here */
#define SHUNT_OFF_DELIVERED (SHUNT_OFF_WAITED + SHUNT_MAX_RANKS * 8)
/* [rank] u64, written by that rank: chunks that it has combined */
#define SHUNT_OFF_COMBINED (SHUNT_OFF_DELIVERED + SHUNT_MAX_RANKS * 8)
/* u64: chunks of all calls before; two u32: blocks that have combined one of this call's */
#define SHUNT_OFF_TURN (SHUNT_OFF_COMBINED + SHUNT_MAX_RANKS * 8)
/* [peer] u64, written by peer: the long message that it has long waited to be offered memory for; 0: none */
#define SHUNT_OFF_PENDING (SHUNT_OFF_TURN + 64)
/* [gate][peer] two u64, written by peer: the call before whose kernel it is, by its epoch and as in call.cuh */
#define SHUNT_OFF_GATE (SHUNT_OFF_PENDING + SHUNT_MAX_RANKS * 8)
/* [peer] u64, written by peer: its call, the last one that staged, as in call.cuh */
#define SHUNT_OFF_CALL (SHUNT_OFF_GATE + SHUNT_GATES * SHUNT_MAX_RANKS * 16)
/* [peer] u64: since when a peer seems to be in another call, see elsewhere.cuh */
#define SHUNT_OFF_ODD (SHUNT_OFF_CALL + SHUNT_MAX_RANKS * 8)
/* [export] shunt_export */
#define SHUNT_OFF_EXPORTS (((SHUNT_OFF_ODD + SHUNT_MAX_RANKS * 8) + 4095) / 4096 * 4096)
#define SHUNT_OFF_IMPORTS (SHUNT_OFF_EXPORTS + SHUNT_MAX_EXPORTS * 32) /* [rank][export] u64: its base, mapped here */
/* shunt_counts: the directory ends with it */
#define SHUNT_OFF_COUNTS(world) (SHUNT_OFF_IMPORTS + (world) * SHUNT_MAX_EXPORTS * 8)
/* [block][peer] 16 bytes, written by peer: which message its offer is for */
#define SHUNT_OFF_TERMS (SHUNT_OFF_COUNTS(SHUNT_MAX_RANKS) + 64 + SHUNT_MAX_EXPORTS * 8)
#define SHUNT_OFF_SLOTS (((SHUNT_OFF_TERMS + SHUNT_MAX_BLOCKS * SHUNT_MAX_RANKS * 16) + 65535) / 65536 * 65536)

/* Slots follow; their sizes depend on the world. Those of LL are in the region from the start. Each of the others' is a
 * part of its own, whose memory is made when a plan first needs it, so they begin and end on whole pages of the GPU. */
#define SHUNT_PART ((int64_t)2 << 20)
/* [parity][source][block] */
#define SHUNT_LL_BYTES(world) ((int64_t)2 * (world) * SHUNT_MAX_BLOCKS * SHUNT_LL_BLOCK_BYTES)
/* [phase][source][block][warp] */
#define SHUNT_LL128_BYTES(world) ((int64_t)2 * (world) * SHUNT_MAX_BLOCKS * SHUNT_LL128_BLOCK_BYTES)
/* [source][lane] */
#define SHUNT_CHANNEL_BYTES(world) ((int64_t)(world) * SHUNT_CHANNEL_LANES * SHUNT_LL128_WARP_BYTES)
/* [source][block][stage] */
#define SHUNT_STAGING_BYTES(world) ((int64_t)(world) * SHUNT_MAX_BLOCKS * SHUNT_STAGES * SHUNT_STAGE_BYTES(world))

#define SHUNT_PARTS(bytes) (((bytes) + SHUNT_PART - 1) / SHUNT_PART * SHUNT_PART) /* bytes, in whole pages */
#define SHUNT_OFF_LL(world) ((int64_t)SHUNT_OFF_SLOTS)
/* what is before it is there from the start */
#define SHUNT_OFF_LL128(world) SHUNT_PARTS(SHUNT_OFF_LL(world) + SHUNT_LL_BYTES(world))
#define SHUNT_OFF_CHANNEL(world) (SHUNT_OFF_LL128(world) + SHUNT_PARTS(SHUNT_LL128_BYTES(world)))
#define SHUNT_OFF_STAGING(world) (SHUNT_OFF_CHANNEL(world) + SHUNT_PARTS(SHUNT_CHANNEL_BYTES(world)))
#define SHUNT_REGION_BYTES(world) (SHUNT_OFF_STAGING(world) + SHUNT_PARTS(SHUNT_STAGING_BYTES(world)))

#endif
