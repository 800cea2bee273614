/*
 * command.h: the ring through which a GPU posts the engine steps of plans to the
 * proxy of its Device: what lies in memory, for command.cu, proxy.c and Go alike.
 *
 * The ring is pinned memory of the host: SHUNT_COMMANDS slots, zero at first. The counters
 * beside it are the GPU's own memory, zero at first; they only grow. The n-th command, counted
 * from 0 as kernels come to it, stands in slot n % SHUNT_COMMANDS.
 *
 * An order travels in halves of its words. Each stands beside a flag, 1 + n, and the two are stored at once: whoever
 * finds all flags has all of the order, whichever came first, and no fence stands behind it.
 *
 * Nobody asks whether a slot is free. A kernel ends when its command has, and a GPU runs at most 128 kernels at a
 * time, so n is not posted before the proxy has begun one of those behind n - 256, and with it that one; and it does
 * not begin n before that one has ended.
 */
#ifndef SHUNT_COMMAND_H
#define SHUNT_COMMAND_H

typedef unsigned long long shunt_word;

#define SHUNT_COMMANDS 256
#define SHUNT_COMMAND_ARGS 16

/* What is to be done. With start it is native code; else a command for the ring of a
 * plugin (shunt_ring.h), whose address stands in poll and whose slots in context. */
typedef struct shunt_order {
  shunt_word start, poll, context, operation;
  shunt_word send, recv; /* native code: the caller's memory */
  shunt_word base;       /* whose plan it is of: the first of its endpoint's regions */
  shunt_word count;      /* of args */
  shunt_word args[SHUNT_COMMAND_ARGS];
} shunt_order;

#define SHUNT_ORDER_WORDS (sizeof(shunt_order) / sizeof(shunt_word))
#define SHUNT_ORDER_FIXED (SHUNT_ORDER_WORDS - SHUNT_COMMAND_ARGS)

typedef struct shunt_command_slot {
  /* The GPU: the lower half of each word, then the upper one, each below the lower half of the flag. Of the arguments,
   * as many as there are. */
  shunt_word order[2 * SHUNT_ORDER_WORDS];
  shunt_word done; /* the proxy: 1 + the number of the command that has ended here */
  shunt_word reserved[7];
} shunt_command_slot;

typedef struct shunt_command_counters {
  shunt_word next; /* number of the next command */
  shunt_word lost; /* not 0 once a kernel has given up */
} shunt_command_counters;

/* Arguments of the kernel shunt_command. */
typedef struct shunt_command_args {
  shunt_word slots, counters, watch; /* addresses */
  shunt_order order;
} shunt_command_args;

#endif
