/*
 * real.h: the real NCCL, opened when it is first needed, and never this library.
 */
#ifndef NC_REAL_H
#define NC_REAL_H

#include "nc.h"

/* nc_real is a function of the real library, or NULL: nc_lacks says why. */
void *nc_real(enum nc_symbol symbol);
/* NC_REAL(ncclCommAbort)(comm): only behind a check that it is there. */
#define NC_REAL(name) ((nc_type_##name *)nc_real(NC_##name))

/* nc_lacks fails with the reason why nc_real returned NULL. */
ncclResult_t nc_lacks(ncclComm_t comm, enum nc_symbol symbol);
const char *nc_name(enum nc_symbol symbol);
/* Where the real library is, or NULL. */
const char *nc_real_path(void);

#endif
