/*
 * unique_id.h: the 128 bytes of ncclUniqueId. They hold Shunt's unique id, which is text in Shunt's interface: the
 * bytes that its letters stand for (base32), and in the last byte how many those are.
 */
#ifndef NC_UNIQUE_ID_H
#define NC_UNIQUE_ID_H

#include "nc.h"

/* nc_id_text is Shunt's text of an id, for a communicator that is made of it. */
ncclResult_t nc_id_text(ncclComm_t comm, const ncclUniqueId *id, char *text, size_t capacity);

/* nc_id_is_ours: whether an id, or NULL, is one of Shunt's. */
bool nc_id_is_ours(const ncclUniqueId *id);

/* nc_random is a number that no other call returns, in any process. */
uint64_t nc_random(void);

#endif
