/*
 * library.h: libshunt.so, opened when the first communicator is made. Not before: it holds a Go runtime, which does
 * not survive fork().
 */
#ifndef NC_LIBRARY_H
#define NC_LIBRARY_H

#include "nc.h"

#define NC_SHUNT_FUNCTIONS(F) \
  F(abort) F(all_reduce) F(close) F(comm_init) F(deregister) F(exchange) F(get_async_error) F(get_unique_id) \
  F(last_error) F(rank) F(register) F(register_symmetric) F(run) F(run_together) F(set_cancel) F(split) F(subset) \
  F(world)

struct nc_shunt {
#define NC_SHUNT_FIELD(name) __typeof__(shunt_##name) *name##_;
  NC_SHUNT_FUNCTIONS(NC_SHUNT_FIELD)
#undef NC_SHUNT_FIELD
};
extern struct nc_shunt nc_shunt __attribute__((visibility("hidden")));

/* nc_open_shunt opens it once; it fails with the reason. */
ncclResult_t nc_open_shunt(ncclComm_t comm);

#endif
