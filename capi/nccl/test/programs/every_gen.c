/* Code generated from capi/nccl/symbols.json by gennccl. DO NOT EDIT. */
#include "every.h"

static void call_ncclAllGather(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAllGather sendbuff=%p recvbuff=%p sendcount=%zu datatype=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclAllGather *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclAllGatherConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAllGatherConfig sendbuff=%p recvbuff=%p sendcount=%zu datatype=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (void *)theirs, (const void *)(void *)(106ul << 36), (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclAllGatherConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, comm /* 105 */, (void *)(106ul << 36), (void *)(107ul << 36)));
}

static void call_ncclAllReduce(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAllReduce sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclAllReduce *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36)));
}

static void call_ncclAllReduceConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAllReduceConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36), (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclAllReduceConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36), (void *)(108ul << 36)));
}

static void call_ncclAlltoAll(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAlltoAll sendbuff=%p recvbuff=%p count=%zu datatype=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclAlltoAll *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclAlltoAllConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclAlltoAllConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (void *)theirs, (const void *)(void *)(106ul << 36), (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclAlltoAllConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, comm /* 105 */, (void *)(106ul << 36), (void *)(107ul << 36)));
}

static void call_ncclBcast(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclBcast buff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclBcast *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclBroadcast(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclBroadcast sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclBroadcast *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36)));
}

static void call_ncclBroadcastConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclBroadcastConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36), (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclBroadcastConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36), (void *)(108ul << 36)));
}

static void call_ncclCommAbort(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommAbort comm=%p", (void *)theirs);
  returned(((nc_type_ncclCommAbort *)function)(comm /* 101 */));
}

static void call_ncclCommCount(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommCount comm=%p count=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommCount *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommCuDevice(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommCuDevice comm=%p device=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommCuDevice *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommDeregister(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommDeregister comm=%p handle=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommDeregister *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommDestroy(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommDestroy comm=%p", (void *)theirs);
  returned(((nc_type_ncclCommDestroy *)function)(comm /* 101 */));
}

static void call_ncclCommFinalize(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommFinalize comm=%p", (void *)theirs);
  returned(((nc_type_ncclCommFinalize *)function)(comm /* 101 */));
}

static void call_ncclCommGetAsyncError(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommGetAsyncError comm=%p asyncError=%p", (void *)theirs, (void *)&asynchronous /* 102 */);
  returned(((nc_type_ncclCommGetAsyncError *)function)(comm /* 101 */, &asynchronous /* 102 */));
}

static void call_ncclCommGetUniqueId(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommGetUniqueId comm=%p uniqueId=%p", (void *)theirs, (const void *)&read /* 102 */);
  returned(((nc_type_ncclCommGetUniqueId *)function)(comm /* 101 */, &read /* 102 */));
}

static void call_ncclCommGrow(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommGrow comm=%p nRanks=%d uniqueId=%p rank=%d newcomm=out config=%p", (void *)theirs, (int)102, (const void *)&read /* 103 */, (int)104, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclCommGrow *)function)(comm /* 101 */, 102, &read /* 103 */, 104, made /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclCommInitAll(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommInitAll comm=out ndev=%d devlist=%p", (int)102, (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclCommInitAll *)function)(made /* 101 */, 102, (void *)(103ul << 36)));
}

static void call_ncclCommInitRank(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommInitRank comm=out nranks=%d commId=%.7s rank=%d", (int)102, (ncclUniqueId){"id103"}.internal, (int)104);
  returned(((nc_type_ncclCommInitRank *)function)(made /* 101 */, 102, (ncclUniqueId){"id103"}, 104));
}

static void call_ncclCommInitRankConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommInitRankConfig comm=out nranks=%d commId=%.7s rank=%d config=%p", (int)102, (ncclUniqueId){"id103"}.internal, (int)104, (const void *)(void *)(105ul << 36));
  returned(((nc_type_ncclCommInitRankConfig *)function)(made /* 101 */, 102, (ncclUniqueId){"id103"}, 104, (void *)(105ul << 36)));
}

static void call_ncclCommInitRankScalable(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommInitRankScalable newcomm=out nranks=%d myrank=%d nId=%d commIds=%p config=%p", (int)102, (int)103, (int)104, (const void *)&read /* 105 */, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclCommInitRankScalable *)function)(made /* 101 */, 102, 103, 104, &read /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclCommMemStats(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommMemStats comm=%p stat=%d value=%p", (void *)theirs, (int)102, (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclCommMemStats *)function)(comm /* 101 */, 102, (void *)(103ul << 36)));
}

static void call_ncclCommQueryProperties(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommQueryProperties comm=%p props=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommQueryProperties *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommRegister(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommRegister comm=%p buff=%p size=%zu handle=%p", (void *)theirs, (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclCommRegister *)function)(comm /* 101 */, (void *)(102ul << 36), ((size_t)103 << 33), (void *)(104ul << 36)));
}

static void call_ncclCommResume(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommResume comm=%p", (void *)theirs);
  returned(((nc_type_ncclCommResume *)function)(comm /* 101 */));
}

static void call_ncclCommRevoke(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommRevoke comm=%p revokeFlags=%d", (void *)theirs, (int)102);
  returned(((nc_type_ncclCommRevoke *)function)(comm /* 101 */, 102));
}

static void call_ncclCommShrink(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommShrink comm=%p excludeRanksList=%p excludeRanksCount=%d newcomm=out config=%p shrinkFlags=%d", (void *)theirs, (const void *)(void *)(102ul << 36), (int)103, (const void *)(void *)(105ul << 36), (int)106);
  returned(((nc_type_ncclCommShrink *)function)(comm /* 101 */, (void *)(102ul << 36), 103, made /* 104 */, (void *)(105ul << 36), 106));
}

static void call_ncclCommSplit(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommSplit comm=%p color=%d key=%d newcomm=out config=%p", (void *)theirs, (int)102, (int)103, (const void *)(void *)(105ul << 36));
  returned(((nc_type_ncclCommSplit *)function)(comm /* 101 */, 102, 103, made /* 104 */, (void *)(105ul << 36)));
}

static void call_ncclCommSuspend(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommSuspend comm=%p flags=%d", (void *)theirs, (int)102);
  returned(((nc_type_ncclCommSuspend *)function)(comm /* 101 */, 102));
}

static void call_ncclCommUserRank(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommUserRank comm=%p rank=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommUserRank *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommWindowDeregister(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommWindowDeregister comm=%p win=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclCommWindowDeregister *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclCommWindowRegister(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclCommWindowRegister comm=%p buff=%p size=%zu win=%p winFlags=%d", (void *)theirs, (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (const void *)(void *)(104ul << 36), (int)105);
  returned(((nc_type_ncclCommWindowRegister *)function)(comm /* 101 */, (void *)(102ul << 36), ((size_t)103 << 33), (void *)(104ul << 36), 105));
}

static void call_ncclDevCommCreate(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclDevCommCreate comm=%p reqs=%p outDevComm=%p", (void *)theirs, (const void *)(void *)(102ul << 36), (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclDevCommCreate *)function)(comm /* 101 */, (void *)(102ul << 36), (void *)(103ul << 36)));
}

static void call_ncclDevCommDestroy(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclDevCommDestroy comm=%p devComm=%p", (void *)theirs, (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclDevCommDestroy *)function)(comm /* 101 */, (void *)(102ul << 36)));
}

static void call_ncclGather(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGather sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclGather *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36)));
}

static void call_ncclGatherConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGatherConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36), (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclGatherConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36), (void *)(108ul << 36)));
}

static void call_ncclGetCftDeviceLeInfo(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetCftDeviceLeInfo window=%p offset=%zu peerCft=%d cftTeam=%d/%d/%d leId=%p leOffset=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (ncclTeam_t){203, 303, 403}.nRanks, (ncclTeam_t){203, 303, 403}.rank, (ncclTeam_t){203, 303, 403}.stride, (const void *)(void *)(105ul << 36), (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclGetCftDeviceLeInfo *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, (ncclTeam_t){203, 303, 403}, (void *)(105ul << 36), (void *)(106ul << 36)));
}

static void call_ncclGetErrorString(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetErrorString result=%d", (int)101);
  returned_text(((nc_type_ncclGetErrorString *)function)(101));
}

static void call_ncclGetLastError(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetLastError comm=%p", (void *)theirs);
  returned_text(((nc_type_ncclGetLastError *)function)(comm /* 101 */));
}

static void call_ncclGetLsaDevicePointer(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetLsaDevicePointer window=%p offset=%zu lsaRank=%d outPtr=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclGetLsaDevicePointer *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, (void *)(104ul << 36)));
}

static void call_ncclGetLsaMultimemDevicePointer(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetLsaMultimemDevicePointer window=%p offset=%zu outPtr=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclGetLsaMultimemDevicePointer *)function)((void *)(101ul << 36), ((size_t)102 << 33), (void *)(103ul << 36)));
}

static void call_ncclGetMultimemDeviceLeInfo(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetMultimemDeviceLeInfo window=%p offset=%zu leId=%p leOffset=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (const void *)(void *)(103ul << 36), (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclGetMultimemDeviceLeInfo *)function)((void *)(101ul << 36), ((size_t)102 << 33), (void *)(103ul << 36), (void *)(104ul << 36)));
}

static void call_ncclGetMultimemDevicePointer(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetMultimemDevicePointer window=%p offset=%zu multimem=%p outPtr=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (ncclMultimemHandle_t){(void *)103ul}.mcBasePtr, (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclGetMultimemDevicePointer *)function)((void *)(101ul << 36), ((size_t)102 << 33), (ncclMultimemHandle_t){(void *)103ul}, (void *)(104ul << 36)));
}

static void call_ncclGetPeerDeviceLeInfo(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetPeerDeviceLeInfo window=%p offset=%zu peerWorld=%d leId=%p leOffset=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (const void *)(void *)(104ul << 36), (const void *)(void *)(105ul << 36));
  returned(((nc_type_ncclGetPeerDeviceLeInfo *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, (void *)(104ul << 36), (void *)(105ul << 36)));
}

static void call_ncclGetPeerDevicePointer(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetPeerDevicePointer window=%p offset=%zu peer=%d outPtr=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclGetPeerDevicePointer *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, (void *)(104ul << 36)));
}

static void call_ncclGetUniqueId(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetUniqueId uniqueId=%p", (const void *)&read /* 101 */);
  returned(((nc_type_ncclGetUniqueId *)function)(&read /* 101 */));
}

static void call_ncclGetVersion(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGetVersion version=%p", (const void *)(void *)(101ul << 36));
  returned(((nc_type_ncclGetVersion *)function)((void *)(101ul << 36)));
}

static void call_ncclGinBarrierCreateRequirement(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGinBarrierCreateRequirement comm=%p team=%d/%d/%d nBarriers=%d outHandle=%p outReq=%p", (void *)theirs, (ncclTeam_t){201, 301, 401}.nRanks, (ncclTeam_t){201, 301, 401}.rank, (ncclTeam_t){201, 301, 401}.stride, (int)103, (const void *)(void *)(104ul << 36), (const void *)(void *)(105ul << 36));
  returned(((nc_type_ncclGinBarrierCreateRequirement *)function)(comm /* 101 */, (ncclTeam_t){201, 301, 401}, 103, (void *)(104ul << 36), (void *)(105ul << 36)));
}

static void call_ncclGinInboxA2ACreateRequirement(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGinInboxA2ACreateRequirement peers=%d/%d/%d nBlocks=%d size_log2=%d outHandle=%p outReq=%p", (ncclTeam_t){200, 300, 400}.nRanks, (ncclTeam_t){200, 300, 400}.rank, (ncclTeam_t){200, 300, 400}.stride, (int)102, (int)103, (const void *)(void *)(104ul << 36), (const void *)(void *)(105ul << 36));
  returned(((nc_type_ncclGinInboxA2ACreateRequirement *)function)((ncclTeam_t){200, 300, 400}, 102, 103, (void *)(104ul << 36), (void *)(105ul << 36)));
}

static void call_ncclGinOutboxCreateRequirement(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGinOutboxCreateRequirement nBlocks=%d size_log2=%d outHandle=%p outReq=%p", (int)101, (int)102, (const void *)(void *)(103ul << 36), (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclGinOutboxCreateRequirement *)function)(101, 102, (void *)(103ul << 36), (void *)(104ul << 36)));
}

static void call_ncclGroupEnd(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGroupEnd");
  returned(((nc_type_ncclGroupEnd *)function)());
}

static void call_ncclGroupSimulateEnd(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGroupSimulateEnd simInfo=%p", (const void *)(void *)(101ul << 36));
  returned(((nc_type_ncclGroupSimulateEnd *)function)((void *)(101ul << 36)));
}

static void call_ncclGroupStart(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclGroupStart");
  returned(((nc_type_ncclGroupStart *)function)());
}

static void call_ncclLLA2ACalcSlots(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclLLA2ACalcSlots maxElts=%d maxEltSize=%d", (int)101, (int)102);
  returned_int(((nc_type_ncclLLA2ACalcSlots *)function)(101, 102));
}

static void call_ncclLLA2ACreateRequirement(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclLLA2ACreateRequirement nBlocks=%d nSlots=%d outHandle=%p outReq=%p", (int)101, (int)102, (const void *)(void *)(103ul << 36), (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclLLA2ACreateRequirement *)function)(101, 102, (void *)(103ul << 36), (void *)(104ul << 36)));
}

static void call_ncclLsaBarrierCreateRequirement(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclLsaBarrierCreateRequirement team=%d/%d/%d nBarriers=%d outHandle=%p outReq=%p", (ncclTeam_t){200, 300, 400}.nRanks, (ncclTeam_t){200, 300, 400}.rank, (ncclTeam_t){200, 300, 400}.stride, (int)102, (const void *)(void *)(103ul << 36), (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclLsaBarrierCreateRequirement *)function)((ncclTeam_t){200, 300, 400}, 102, (void *)(103ul << 36), (void *)(104ul << 36)));
}

static void call_ncclMemAlloc(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclMemAlloc ptr=%p size=%zu", (const void *)(void *)(101ul << 36), ((size_t)102 << 33));
  returned(((nc_type_ncclMemAlloc *)function)((void *)(101ul << 36), ((size_t)102 << 33)));
}

static void call_ncclMemFree(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclMemFree ptr=%p", (const void *)(void *)(101ul << 36));
  returned(((nc_type_ncclMemFree *)function)((void *)(101ul << 36)));
}

static void call_ncclParamBind(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamBind out=%p key=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamBind *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamDumpAll(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamDumpAll");
  ((nc_type_ncclParamDumpAll *)function)();
}

static void call_ncclParamGet(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGet h=%p out=%p maxLen=%d len=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), (int)103, (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclParamGet *)function)((void *)(101ul << 36), (void *)(102ul << 36), 103, (void *)(104ul << 36)));
}

static void call_ncclParamGetAllParameterKeys(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetAllParameterKeys table=%p tableLen=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetAllParameterKeys *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetI16(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetI16 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetI16 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetI32(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetI32 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetI32 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetI64(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetI64 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetI64 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetI8(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetI8 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetI8 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetParameter(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetParameter key=%p value=%p valueLen=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclParamGetParameter *)function)((void *)(101ul << 36), (void *)(102ul << 36), (void *)(103ul << 36)));
}

static void call_ncclParamGetStr(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetStr h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetStr *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetU16(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetU16 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetU16 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetU32(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetU32 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetU32 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetU64(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetU64 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetU64 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclParamGetU8(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclParamGetU8 h=%p out=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36));
  returned(((nc_type_ncclParamGetU8 *)function)((void *)(101ul << 36), (void *)(102ul << 36)));
}

static void call_ncclPutSignal(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclPutSignal localbuff=%p count=%zu datatype=%d peer=%d peerWin=%p peerWinOffset=%zu sigIdx=%d ctx=%d flags=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (int)104, (const void *)(void *)(105ul << 36), ((size_t)106 << 33), (int)107, (int)108, (int)109, (void *)theirs, (const void *)(void *)(111ul << 36));
  returned(((nc_type_ncclPutSignal *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, 104, (void *)(105ul << 36), ((size_t)106 << 33), 107, 108, 109, comm /* 110 */, (void *)(111ul << 36)));
}

static void call_ncclRecv(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclRecv recvbuff=%p count=%zu datatype=%d peer=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclRecv *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclRedOpCreatePreMulSum(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclRedOpCreatePreMulSum op=%p scalar=%p datatype=%d residence=%d comm=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), (int)103, (int)104, (void *)theirs);
  returned(((nc_type_ncclRedOpCreatePreMulSum *)function)((void *)(101ul << 36), (void *)(102ul << 36), 103, 104, comm /* 105 */));
}

static void call_ncclRedOpDestroy(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclRedOpDestroy op=%d comm=%p", (int)101, (void *)theirs);
  returned(((nc_type_ncclRedOpDestroy *)function)(101, comm /* 102 */));
}

static void call_ncclReduce(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclReduce sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d root=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (int)106, (void *)theirs, (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclReduce *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, 106, comm /* 107 */, (void *)(108ul << 36)));
}

static void call_ncclReduceConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclReduceConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d root=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (int)106, (void *)theirs, (const void *)(void *)(108ul << 36), (const void *)(void *)(109ul << 36));
  returned(((nc_type_ncclReduceConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, 106, comm /* 107 */, (void *)(108ul << 36), (void *)(109ul << 36)));
}

static void call_ncclReduceScatter(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclReduceScatter sendbuff=%p recvbuff=%p recvcount=%zu datatype=%d op=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclReduceScatter *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36)));
}

static void call_ncclReduceScatterConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclReduceScatterConfig sendbuff=%p recvbuff=%p recvcount=%zu datatype=%d op=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36), (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclReduceScatterConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36), (void *)(108ul << 36)));
}

static void call_ncclResetDebugInit(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclResetDebugInit");
  ((nc_type_ncclResetDebugInit *)function)();
}

static void call_ncclResetDebugInitInternal(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclResetDebugInitInternal");
  ((nc_type_ncclResetDebugInitInternal *)function)();
}

static void call_ncclScatter(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclScatter sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36));
  returned(((nc_type_ncclScatter *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36)));
}

static void call_ncclScatterConfig(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclScatterConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)(void *)(101ul << 36), (const void *)(void *)(102ul << 36), ((size_t)103 << 33), (int)104, (int)105, (void *)theirs, (const void *)(void *)(107ul << 36), (const void *)(void *)(108ul << 36));
  returned(((nc_type_ncclScatterConfig *)function)((void *)(101ul << 36), (void *)(102ul << 36), ((size_t)103 << 33), 104, 105, comm /* 106 */, (void *)(107ul << 36), (void *)(108ul << 36)));
}

static void call_ncclSend(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclSend sendbuff=%p count=%zu datatype=%d peer=%d comm=%p stream=%p", (const void *)(void *)(101ul << 36), ((size_t)102 << 33), (int)103, (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclSend *)function)((void *)(101ul << 36), ((size_t)102 << 33), 103, 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclSetEncryption(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclSetEncryption config=%p", (const void *)(void *)(101ul << 36));
  returned(((nc_type_ncclSetEncryption *)function)((void *)(101ul << 36)));
}

static void call_ncclSignal(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclSignal peer=%d sigIdx=%d ctx=%d flags=%d comm=%p stream=%p", (int)101, (int)102, (int)103, (int)104, (void *)theirs, (const void *)(void *)(106ul << 36));
  returned(((nc_type_ncclSignal *)function)(101, 102, 103, 104, comm /* 105 */, (void *)(106ul << 36)));
}

static void call_ncclTeamCft(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamCft comm=%p mode=%d", (void *)theirs, (int)102);
  ncclTeam_t team = ((nc_type_ncclTeamCft *)function)(comm /* 101 */, 102);
  returned_team(team);
}

static void call_ncclTeamCftMultimem(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamCftMultimem comm=%p", (void *)theirs);
  ncclTeam_t team = ((nc_type_ncclTeamCftMultimem *)function)(comm /* 101 */);
  returned_team(team);
}

static void call_ncclTeamLsa(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamLsa comm=%p", (void *)theirs);
  ncclTeam_t team = ((nc_type_ncclTeamLsa *)function)(comm /* 101 */);
  returned_team(team);
}

static void call_ncclTeamRail(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamRail comm=%p", (void *)theirs);
  ncclTeam_t team = ((nc_type_ncclTeamRail *)function)(comm /* 101 */);
  returned_team(team);
}

static void call_ncclTeamRankToLsa(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamRankToLsa comm=%p team=%d/%d/%d rank=%d", (void *)theirs, (ncclTeam_t){201, 301, 401}.nRanks, (ncclTeam_t){201, 301, 401}.rank, (ncclTeam_t){201, 301, 401}.stride, (int)103);
  returned_int(((nc_type_ncclTeamRankToLsa *)function)(comm /* 101 */, (ncclTeam_t){201, 301, 401}, 103));
}

static void call_ncclTeamRankToWorld(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamRankToWorld comm=%p team=%d/%d/%d rank=%d", (void *)theirs, (ncclTeam_t){201, 301, 401}.nRanks, (ncclTeam_t){201, 301, 401}.rank, (ncclTeam_t){201, 301, 401}.stride, (int)103);
  returned_int(((nc_type_ncclTeamRankToWorld *)function)(comm /* 101 */, (ncclTeam_t){201, 301, 401}, 103));
}

static void call_ncclTeamWorld(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclTeamWorld comm=%p", (void *)theirs);
  ncclTeam_t team = ((nc_type_ncclTeamWorld *)function)(comm /* 101 */);
  returned_team(team);
}

static void call_ncclWaitSignal(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclWaitSignal nDesc=%d signalDescs=%p comm=%p stream=%p", (int)101, (const void *)(void *)(102ul << 36), (void *)theirs, (const void *)(void *)(104ul << 36));
  returned(((nc_type_ncclWaitSignal *)function)(101, (void *)(102ul << 36), comm /* 103 */, (void *)(104ul << 36)));
}

static void call_ncclWinGetUserPtr(void *function, ncclComm_t comm, ncclComm_t theirs) {
  ncclResult_t asynchronous = 0;
  ncclComm_t made[256] = {0};
  ncclUniqueId read = {{0}};
  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;
  expect("ncclWinGetUserPtr comm=%p win=%p outUserPtr=%p", (void *)theirs, (const void *)(void *)(102ul << 36), (const void *)(void *)(103ul << 36));
  returned(((nc_type_ncclWinGetUserPtr *)function)(comm /* 101 */, (void *)(102ul << 36), (void *)(103ul << 36)));
}

const struct entry entries[] = {
    {"ncclAllGather", call_ncclAllGather, 3, false, true},
    {"ncclAllGatherConfig", call_ncclAllGatherConfig, 3, true, true},
    {"ncclAllReduce", call_ncclAllReduce, 3, false, true},
    {"ncclAllReduceConfig", call_ncclAllReduceConfig, 3, true, true},
    {"ncclAlltoAll", call_ncclAlltoAll, 3, false, true},
    {"ncclAlltoAllConfig", call_ncclAlltoAllConfig, 3, true, true},
    {"ncclBcast", call_ncclBcast, 3, false, true},
    {"ncclBroadcast", call_ncclBroadcast, 3, false, true},
    {"ncclBroadcastConfig", call_ncclBroadcastConfig, 3, true, true},
    {"ncclCommAbort", call_ncclCommAbort, 0, false, true},
    {"ncclCommCount", call_ncclCommCount, 1, false, true},
    {"ncclCommCuDevice", call_ncclCommCuDevice, 1, false, true},
    {"ncclCommDeregister", call_ncclCommDeregister, 1, false, true},
    {"ncclCommDestroy", call_ncclCommDestroy, 0, false, true},
    {"ncclCommFinalize", call_ncclCommFinalize, 0, false, true},
    {"ncclCommGetAsyncError", call_ncclCommGetAsyncError, 0, false, true},
    {"ncclCommGetUniqueId", call_ncclCommGetUniqueId, 4, true, true},
    {"ncclCommGrow", call_ncclCommGrow, 0, true, true},
    {"ncclCommInitAll", call_ncclCommInitAll, 0, false, true},
    {"ncclCommInitRank", call_ncclCommInitRank, 0, false, true},
    {"ncclCommInitRankConfig", call_ncclCommInitRankConfig, 0, false, true},
    {"ncclCommInitRankScalable", call_ncclCommInitRankScalable, 0, false, true},
    {"ncclCommMemStats", call_ncclCommMemStats, 4, true, true},
    {"ncclCommQueryProperties", call_ncclCommQueryProperties, 4, true, true},
    {"ncclCommRegister", call_ncclCommRegister, 1, false, true},
    {"ncclCommResume", call_ncclCommResume, 4, true, true},
    {"ncclCommRevoke", call_ncclCommRevoke, 1, false, true},
    {"ncclCommShrink", call_ncclCommShrink, 0, false, true},
    {"ncclCommSplit", call_ncclCommSplit, 0, false, true},
    {"ncclCommSuspend", call_ncclCommSuspend, 4, true, true},
    {"ncclCommUserRank", call_ncclCommUserRank, 1, false, true},
    {"ncclCommWindowDeregister", call_ncclCommWindowDeregister, 2, false, true},
    {"ncclCommWindowRegister", call_ncclCommWindowRegister, 2, false, true},
    {"ncclDevCommCreate", call_ncclDevCommCreate, 4, false, true},
    {"ncclDevCommDestroy", call_ncclDevCommDestroy, 4, false, true},
    {"ncclGather", call_ncclGather, 3, false, true},
    {"ncclGatherConfig", call_ncclGatherConfig, 3, true, true},
    {"ncclGetCftDeviceLeInfo", call_ncclGetCftDeviceLeInfo, 5, true, true},
    {"ncclGetErrorString", call_ncclGetErrorString, 0, false, false},
    {"ncclGetLastError", call_ncclGetLastError, 0, false, false},
    {"ncclGetLsaDevicePointer", call_ncclGetLsaDevicePointer, 5, true, true},
    {"ncclGetLsaMultimemDevicePointer", call_ncclGetLsaMultimemDevicePointer, 5, true, true},
    {"ncclGetMultimemDeviceLeInfo", call_ncclGetMultimemDeviceLeInfo, 5, true, true},
    {"ncclGetMultimemDevicePointer", call_ncclGetMultimemDevicePointer, 5, true, true},
    {"ncclGetPeerDeviceLeInfo", call_ncclGetPeerDeviceLeInfo, 5, true, true},
    {"ncclGetPeerDevicePointer", call_ncclGetPeerDevicePointer, 5, true, true},
    {"ncclGetUniqueId", call_ncclGetUniqueId, 0, false, true},
    {"ncclGetVersion", call_ncclGetVersion, 0, false, true},
    {"ncclGinBarrierCreateRequirement", call_ncclGinBarrierCreateRequirement, 4, false, true},
    {"ncclGinInboxA2ACreateRequirement", call_ncclGinInboxA2ACreateRequirement, 5, true, true},
    {"ncclGinOutboxCreateRequirement", call_ncclGinOutboxCreateRequirement, 5, true, true},
    {"ncclGroupEnd", call_ncclGroupEnd, 0, false, true},
    {"ncclGroupSimulateEnd", call_ncclGroupSimulateEnd, 0, false, true},
    {"ncclGroupStart", call_ncclGroupStart, 0, false, true},
    {"ncclLLA2ACalcSlots", call_ncclLLA2ACalcSlots, 5, false, false},
    {"ncclLLA2ACreateRequirement", call_ncclLLA2ACreateRequirement, 5, false, true},
    {"ncclLsaBarrierCreateRequirement", call_ncclLsaBarrierCreateRequirement, 5, false, true},
    {"ncclMemAlloc", call_ncclMemAlloc, 0, false, true},
    {"ncclMemFree", call_ncclMemFree, 0, false, true},
    {"ncclParamBind", call_ncclParamBind, 5, true, true},
    {"ncclParamDumpAll", call_ncclParamDumpAll, 5, true, false},
    {"ncclParamGet", call_ncclParamGet, 5, true, true},
    {"ncclParamGetAllParameterKeys", call_ncclParamGetAllParameterKeys, 5, true, true},
    {"ncclParamGetI16", call_ncclParamGetI16, 5, true, true},
    {"ncclParamGetI32", call_ncclParamGetI32, 5, true, true},
    {"ncclParamGetI64", call_ncclParamGetI64, 5, true, true},
    {"ncclParamGetI8", call_ncclParamGetI8, 5, true, true},
    {"ncclParamGetParameter", call_ncclParamGetParameter, 5, true, true},
    {"ncclParamGetStr", call_ncclParamGetStr, 5, true, true},
    {"ncclParamGetU16", call_ncclParamGetU16, 5, true, true},
    {"ncclParamGetU32", call_ncclParamGetU32, 5, true, true},
    {"ncclParamGetU64", call_ncclParamGetU64, 5, true, true},
    {"ncclParamGetU8", call_ncclParamGetU8, 5, true, true},
    {"ncclPutSignal", call_ncclPutSignal, 4, true, true},
    {"ncclRecv", call_ncclRecv, 3, false, true},
    {"ncclRedOpCreatePreMulSum", call_ncclRedOpCreatePreMulSum, 1, false, true},
    {"ncclRedOpDestroy", call_ncclRedOpDestroy, 1, false, true},
    {"ncclReduce", call_ncclReduce, 3, false, true},
    {"ncclReduceConfig", call_ncclReduceConfig, 3, true, true},
    {"ncclReduceScatter", call_ncclReduceScatter, 3, false, true},
    {"ncclReduceScatterConfig", call_ncclReduceScatterConfig, 3, true, true},
    {"ncclResetDebugInit", call_ncclResetDebugInit, 0, false, false},
    {"ncclResetDebugInitInternal", call_ncclResetDebugInitInternal, 0, false, false},
    {"ncclScatter", call_ncclScatter, 3, false, true},
    {"ncclScatterConfig", call_ncclScatterConfig, 3, true, true},
    {"ncclSend", call_ncclSend, 3, false, true},
    {"ncclSetEncryption", call_ncclSetEncryption, 5, true, true},
    {"ncclSignal", call_ncclSignal, 4, true, true},
    {"ncclTeamCft", call_ncclTeamCft, 4, true, false},
    {"ncclTeamCftMultimem", call_ncclTeamCftMultimem, 4, true, false},
    {"ncclTeamLsa", call_ncclTeamLsa, 4, false, false},
    {"ncclTeamRail", call_ncclTeamRail, 4, false, false},
    {"ncclTeamRankToLsa", call_ncclTeamRankToLsa, 4, false, false},
    {"ncclTeamRankToWorld", call_ncclTeamRankToWorld, 4, false, false},
    {"ncclTeamWorld", call_ncclTeamWorld, 4, false, false},
    {"ncclWaitSignal", call_ncclWaitSignal, 4, true, true},
    {"ncclWinGetUserPtr", call_ncclWinGetUserPtr, 2, true, true},
};
const int entry_count = sizeof entries / sizeof *entries;
