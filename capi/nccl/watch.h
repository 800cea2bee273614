/*
 * watch.h: the flight recorder of what the real NCCL does.
 */
#ifndef NC_WATCH_H
#define NC_WATCH_H

#include "nc.h"

/* Where a call stands in the recorder. */
struct nc_mark {
  int64_t number; /* -1: nowhere */
};

/* nc_watch_id and nc_watch_child begin the records of a new communicator: of a unique id; of another communicator. */
void nc_watch_id(ncclComm_t comm, const ncclUniqueId *id);
void nc_watch_child(ncclComm_t comm, ncclComm_t parent, int color);

struct nc_mark nc_watch(ncclComm_t comm, int collective, int64_t count, ncclDataType_t dtype, ncclRedOp_t op, int root,
                        cudaStream_t stream);
/* nc_watched returns result, behind the call that mark stands for. */
ncclResult_t nc_watched(ncclComm_t comm, struct nc_mark mark, ncclResult_t result);
/* nc_watch_failure writes the records: the communicator has failed. */
void nc_watch_failure(ncclComm_t comm, ncclResult_t result);
/* nc_watch_end is before the end of a communicator. */
void nc_watch_end(ncclComm_t comm, bool abort);
void nc_forget_ring(ncclComm_t comm);

#endif
