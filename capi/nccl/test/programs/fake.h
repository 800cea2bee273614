/*
 * fake.h: a library in the place of the real NCCL that writes down each call and its arguments.
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "symbols_gen.h"

extern ncclResult_t fake_result; /* what the functions return */
extern const char *fake_text;    /* likewise */
extern char fake_log[1 << 16];   /* one line for each call */

extern atomic_int fake_hold;       /* 1: the next call makes it 2, and stays inside until it is 0 */

void fake_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* fake_make writes new communicators, or NULL where fake_result is a failure. It does not return while fake_held. */
void fake_make(ncclComm_t *comms, int count);
extern atomic_bool fake_held;

/* With fake_late only fake_write writes them: NCCL writes the children of a communicator when they are made. */
extern bool fake_late;
void fake_write(void);
void fake_drop(void); /* they are not made: their parent is aborted */

/* With an id, or an operation, functions that make one write it; without, they do not touch what they are given. */
extern char fake_id[8];
extern ncclRedOp_t fake_op;
void fake_make_id(ncclUniqueId *id);
void fake_make_op(ncclRedOp_t *op);

/* fake_calls_another says by which kind of reference the library meets another function than its own ncclCommCount when
 * it means itself; NULL: by none. */
const char *fake_calls_another(void);

#endif
