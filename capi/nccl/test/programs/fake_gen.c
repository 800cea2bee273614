/* Code generated from capi/nccl/symbols.json by gennccl. DO NOT EDIT. */
#include "fake.h"

nc_type_ncclAllGather pncclAllGather;
ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclAllGather sendbuff=%p recvbuff=%p sendcount=%zu datatype=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, sendcount, (int)datatype, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclAllGather"))) nc_type_ncclAllGather ncclAllGather;

#ifndef OLDER

nc_type_ncclAllGatherConfig pncclAllGatherConfig;
ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclAllGatherConfig sendbuff=%p recvbuff=%p sendcount=%zu datatype=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, sendcount, (int)datatype, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclAllGatherConfig"))) nc_type_ncclAllGatherConfig ncclAllGatherConfig;
#endif

nc_type_ncclAllReduce pncclAllReduce;
ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclAllReduce sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)op, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclAllReduce"))) nc_type_ncclAllReduce ncclAllReduce;

#ifndef OLDER

nc_type_ncclAllReduceConfig pncclAllReduceConfig;
ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclAllReduceConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)op, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclAllReduceConfig"))) nc_type_ncclAllReduceConfig ncclAllReduceConfig;
#endif

nc_type_ncclAlltoAll pncclAlltoAll;
ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclAlltoAll sendbuff=%p recvbuff=%p count=%zu datatype=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclAlltoAll"))) nc_type_ncclAlltoAll ncclAlltoAll;

#ifndef OLDER

nc_type_ncclAlltoAllConfig pncclAlltoAllConfig;
ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclAlltoAllConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclAlltoAllConfig"))) nc_type_ncclAlltoAllConfig ncclAlltoAllConfig;
#endif

nc_type_ncclBcast pncclBcast;
ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclBcast buff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)buff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclBcast"))) nc_type_ncclBcast ncclBcast;

nc_type_ncclBroadcast pncclBroadcast;
ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclBroadcast sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclBroadcast"))) nc_type_ncclBroadcast ncclBroadcast;

#ifndef OLDER

nc_type_ncclBroadcastConfig pncclBroadcastConfig;
ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclBroadcastConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclBroadcastConfig"))) nc_type_ncclBroadcastConfig ncclBroadcastConfig;
#endif

nc_type_ncclCommAbort pncclCommAbort;
ncclResult_t pncclCommAbort(ncclComm_t comm) {
  fake_note("ncclCommAbort comm=%p", (void *)comm);
  return fake_result;
}
__attribute__((alias("pncclCommAbort"))) nc_type_ncclCommAbort ncclCommAbort;

nc_type_ncclCommCount pncclCommCount;
ncclResult_t pncclCommCount(ncclComm_t comm, int *count) {
  fake_note("ncclCommCount comm=%p count=%p", (void *)comm, (const void *)count);
  return fake_result;
}
__attribute__((alias("pncclCommCount"))) nc_type_ncclCommCount ncclCommCount;

nc_type_ncclCommCuDevice pncclCommCuDevice;
ncclResult_t pncclCommCuDevice(ncclComm_t comm, int *device) {
  fake_note("ncclCommCuDevice comm=%p device=%p", (void *)comm, (const void *)device);
  return fake_result;
}
__attribute__((alias("pncclCommCuDevice"))) nc_type_ncclCommCuDevice ncclCommCuDevice;

nc_type_ncclCommDeregister pncclCommDeregister;
ncclResult_t pncclCommDeregister(ncclComm_t comm, void *handle) {
  fake_note("ncclCommDeregister comm=%p handle=%p", (void *)comm, (const void *)handle);
  return fake_result;
}
__attribute__((alias("pncclCommDeregister"))) nc_type_ncclCommDeregister ncclCommDeregister;

nc_type_ncclCommDestroy pncclCommDestroy;
ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  fake_note("ncclCommDestroy comm=%p", (void *)comm);
  return fake_result;
}
__attribute__((alias("pncclCommDestroy"))) nc_type_ncclCommDestroy ncclCommDestroy;

nc_type_ncclCommFinalize pncclCommFinalize;
ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  fake_note("ncclCommFinalize comm=%p", (void *)comm);
  return fake_result;
}
__attribute__((alias("pncclCommFinalize"))) nc_type_ncclCommFinalize ncclCommFinalize;

nc_type_ncclCommGetAsyncError pncclCommGetAsyncError;
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  fake_note("ncclCommGetAsyncError comm=%p asyncError=%p", (void *)comm, (void *)asyncError);
  return fake_result;
}
__attribute__((alias("pncclCommGetAsyncError"))) nc_type_ncclCommGetAsyncError ncclCommGetAsyncError;

#ifndef OLDER

nc_type_ncclCommGetUniqueId pncclCommGetUniqueId;
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId) {
  fake_note("ncclCommGetUniqueId comm=%p uniqueId=%p", (void *)comm, (const void *)uniqueId);
  fake_make_id(uniqueId);
  return fake_result;
}
__attribute__((alias("pncclCommGetUniqueId"))) nc_type_ncclCommGetUniqueId ncclCommGetUniqueId;
#endif

#ifndef OLDER

nc_type_ncclCommGrow pncclCommGrow;
ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config) {
  fake_note("ncclCommGrow comm=%p nRanks=%d uniqueId=%p rank=%d newcomm=out config=%p", (void *)comm, (int)nRanks, (const void *)uniqueId, (int)rank, (const void *)config);
  fake_make(newcomm, 1);
  return fake_result;
}
__attribute__((alias("pncclCommGrow"))) nc_type_ncclCommGrow ncclCommGrow;
#endif

nc_type_ncclCommInitAll pncclCommInitAll;
ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
  fake_note("ncclCommInitAll comm=out ndev=%d devlist=%p", (int)ndev, (const void *)devlist);
  fake_make(comm, ndev);
  return fake_result;
}
__attribute__((alias("pncclCommInitAll"))) nc_type_ncclCommInitAll ncclCommInitAll;

nc_type_ncclCommInitRank pncclCommInitRank;
ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
  fake_note("ncclCommInitRank comm=out nranks=%d commId=%.7s rank=%d", (int)nranks, commId.internal, (int)rank);
  fake_make(comm, 1);
  return fake_result;
}
__attribute__((alias("pncclCommInitRank"))) nc_type_ncclCommInitRank ncclCommInitRank;

nc_type_ncclCommInitRankConfig pncclCommInitRankConfig;
ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config) {
  fake_note("ncclCommInitRankConfig comm=out nranks=%d commId=%.7s rank=%d config=%p", (int)nranks, commId.internal, (int)rank, (const void *)config);
  fake_make(comm, 1);
  return fake_result;
}
__attribute__((alias("pncclCommInitRankConfig"))) nc_type_ncclCommInitRankConfig ncclCommInitRankConfig;

nc_type_ncclCommInitRankScalable pncclCommInitRankScalable;
ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config) {
  fake_note("ncclCommInitRankScalable newcomm=out nranks=%d myrank=%d nId=%d commIds=%p config=%p", (int)nranks, (int)myrank, (int)nId, (const void *)commIds, (const void *)config);
  fake_make(newcomm, 1);
  fake_make_id(commIds);
  return fake_result;
}
__attribute__((alias("pncclCommInitRankScalable"))) nc_type_ncclCommInitRankScalable ncclCommInitRankScalable;

#ifndef OLDER

nc_type_ncclCommMemStats pncclCommMemStats;
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
  fake_note("ncclCommMemStats comm=%p stat=%d value=%p", (void *)comm, (int)stat, (const void *)value);
  return fake_result;
}
__attribute__((alias("pncclCommMemStats"))) nc_type_ncclCommMemStats ncclCommMemStats;
#endif

#ifndef OLDER

nc_type_ncclCommQueryProperties pncclCommQueryProperties;
ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props) {
  fake_note("ncclCommQueryProperties comm=%p props=%p", (void *)comm, (const void *)props);
  return fake_result;
}
__attribute__((alias("pncclCommQueryProperties"))) nc_type_ncclCommQueryProperties ncclCommQueryProperties;
#endif

nc_type_ncclCommRegister pncclCommRegister;
ncclResult_t pncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle) {
  fake_note("ncclCommRegister comm=%p buff=%p size=%zu handle=%p", (void *)comm, (const void *)buff, size, (const void *)handle);
  return fake_result;
}
__attribute__((alias("pncclCommRegister"))) nc_type_ncclCommRegister ncclCommRegister;

#ifndef OLDER

nc_type_ncclCommResume pncclCommResume;
ncclResult_t pncclCommResume(ncclComm_t comm) {
  fake_note("ncclCommResume comm=%p", (void *)comm);
  return fake_result;
}
__attribute__((alias("pncclCommResume"))) nc_type_ncclCommResume ncclCommResume;
#endif

nc_type_ncclCommRevoke pncclCommRevoke;
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  fake_note("ncclCommRevoke comm=%p revokeFlags=%d", (void *)comm, (int)revokeFlags);
  return fake_result;
}
__attribute__((alias("pncclCommRevoke"))) nc_type_ncclCommRevoke ncclCommRevoke;

nc_type_ncclCommShrink pncclCommShrink;
ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
  fake_note("ncclCommShrink comm=%p excludeRanksList=%p excludeRanksCount=%d newcomm=out config=%p shrinkFlags=%d", (void *)comm, (const void *)excludeRanksList, (int)excludeRanksCount, (const void *)config, (int)shrinkFlags);
  fake_make(newcomm, 1);
  return fake_result;
}
__attribute__((alias("pncclCommShrink"))) nc_type_ncclCommShrink ncclCommShrink;

nc_type_ncclCommSplit pncclCommSplit;
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  fake_note("ncclCommSplit comm=%p color=%d key=%d newcomm=out config=%p", (void *)comm, (int)color, (int)key, (const void *)config);
  fake_make(newcomm, 1);
  return fake_result;
}
__attribute__((alias("pncclCommSplit"))) nc_type_ncclCommSplit ncclCommSplit;

#ifndef OLDER

nc_type_ncclCommSuspend pncclCommSuspend;
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) {
  fake_note("ncclCommSuspend comm=%p flags=%d", (void *)comm, (int)flags);
  return fake_result;
}
__attribute__((alias("pncclCommSuspend"))) nc_type_ncclCommSuspend ncclCommSuspend;
#endif

nc_type_ncclCommUserRank pncclCommUserRank;
ncclResult_t pncclCommUserRank(ncclComm_t comm, int *rank) {
  fake_note("ncclCommUserRank comm=%p rank=%p", (void *)comm, (const void *)rank);
  return fake_result;
}
__attribute__((alias("pncclCommUserRank"))) nc_type_ncclCommUserRank ncclCommUserRank;

nc_type_ncclCommWindowDeregister pncclCommWindowDeregister;
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  fake_note("ncclCommWindowDeregister comm=%p win=%p", (void *)comm, (const void *)win);
  return fake_result;
}
__attribute__((alias("pncclCommWindowDeregister"))) nc_type_ncclCommWindowDeregister ncclCommWindowDeregister;

nc_type_ncclCommWindowRegister pncclCommWindowRegister;
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags) {
  fake_note("ncclCommWindowRegister comm=%p buff=%p size=%zu win=%p winFlags=%d", (void *)comm, (const void *)buff, size, (const void *)win, (int)winFlags);
  return fake_result;
}
__attribute__((alias("pncclCommWindowRegister"))) nc_type_ncclCommWindowRegister ncclCommWindowRegister;

nc_type_ncclDevCommCreate pncclDevCommCreate;
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm) {
  fake_note("ncclDevCommCreate comm=%p reqs=%p outDevComm=%p", (void *)comm, (const void *)reqs, (const void *)outDevComm);
  return fake_result;
}
__attribute__((alias("pncclDevCommCreate"))) nc_type_ncclDevCommCreate ncclDevCommCreate;

nc_type_ncclDevCommDestroy pncclDevCommDestroy;
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm) {
  fake_note("ncclDevCommDestroy comm=%p devComm=%p", (void *)comm, (const void *)devComm);
  return fake_result;
}
__attribute__((alias("pncclDevCommDestroy"))) nc_type_ncclDevCommDestroy ncclDevCommDestroy;

nc_type_ncclGather pncclGather;
ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclGather sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclGather"))) nc_type_ncclGather ncclGather;

#ifndef OLDER

nc_type_ncclGatherConfig pncclGatherConfig;
ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclGatherConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclGatherConfig"))) nc_type_ncclGatherConfig ncclGatherConfig;
#endif

#ifndef OLDER

nc_type_ncclGetCftDeviceLeInfo pncclGetCftDeviceLeInfo;
ncclResult_t pncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId_t *leId, size_t *leOffset) {
  fake_note("ncclGetCftDeviceLeInfo window=%p offset=%zu peerCft=%d cftTeam=%d/%d/%d leId=%p leOffset=%p", (const void *)window, offset, (int)peerCft, cftTeam.nRanks, cftTeam.rank, cftTeam.stride, (const void *)leId, (const void *)leOffset);
  return fake_result;
}
__attribute__((alias("pncclGetCftDeviceLeInfo"))) nc_type_ncclGetCftDeviceLeInfo ncclGetCftDeviceLeInfo;
#endif

nc_type_ncclGetErrorString pncclGetErrorString;
const char *pncclGetErrorString(ncclResult_t result) {
  fake_note("ncclGetErrorString result=%d", (int)result);
  return fake_text;
}
__attribute__((alias("pncclGetErrorString"))) nc_type_ncclGetErrorString ncclGetErrorString;

nc_type_ncclGetLastError pncclGetLastError;
const char *pncclGetLastError(ncclComm_t comm) {
  fake_note("ncclGetLastError comm=%p", (void *)comm);
  return fake_text;
}
__attribute__((alias("pncclGetLastError"))) nc_type_ncclGetLastError ncclGetLastError;

#ifndef OLDER

nc_type_ncclGetLsaDevicePointer pncclGetLsaDevicePointer;
ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr) {
  fake_note("ncclGetLsaDevicePointer window=%p offset=%zu lsaRank=%d outPtr=%p", (const void *)window, offset, (int)lsaRank, (const void *)outPtr);
  return fake_result;
}
__attribute__((alias("pncclGetLsaDevicePointer"))) nc_type_ncclGetLsaDevicePointer ncclGetLsaDevicePointer;
#endif

#ifndef OLDER

nc_type_ncclGetLsaMultimemDevicePointer pncclGetLsaMultimemDevicePointer;
ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr) {
  fake_note("ncclGetLsaMultimemDevicePointer window=%p offset=%zu outPtr=%p", (const void *)window, offset, (const void *)outPtr);
  return fake_result;
}
__attribute__((alias("pncclGetLsaMultimemDevicePointer"))) nc_type_ncclGetLsaMultimemDevicePointer ncclGetLsaMultimemDevicePointer;
#endif

#ifndef OLDER

nc_type_ncclGetMultimemDeviceLeInfo pncclGetMultimemDeviceLeInfo;
ncclResult_t pncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId_t *leId, size_t *leOffset) {
  fake_note("ncclGetMultimemDeviceLeInfo window=%p offset=%zu leId=%p leOffset=%p", (const void *)window, offset, (const void *)leId, (const void *)leOffset);
  return fake_result;
}
__attribute__((alias("pncclGetMultimemDeviceLeInfo"))) nc_type_ncclGetMultimemDeviceLeInfo ncclGetMultimemDeviceLeInfo;
#endif

#ifndef OLDER

nc_type_ncclGetMultimemDevicePointer pncclGetMultimemDevicePointer;
ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **outPtr) {
  fake_note("ncclGetMultimemDevicePointer window=%p offset=%zu multimem=%p outPtr=%p", (const void *)window, offset, multimem.mcBasePtr, (const void *)outPtr);
  return fake_result;
}
__attribute__((alias("pncclGetMultimemDevicePointer"))) nc_type_ncclGetMultimemDevicePointer ncclGetMultimemDevicePointer;
#endif

#ifndef OLDER

nc_type_ncclGetPeerDeviceLeInfo pncclGetPeerDeviceLeInfo;
ncclResult_t pncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId_t *leId, size_t *leOffset) {
  fake_note("ncclGetPeerDeviceLeInfo window=%p offset=%zu peerWorld=%d leId=%p leOffset=%p", (const void *)window, offset, (int)peerWorld, (const void *)leId, (const void *)leOffset);
  return fake_result;
}
__attribute__((alias("pncclGetPeerDeviceLeInfo"))) nc_type_ncclGetPeerDeviceLeInfo ncclGetPeerDeviceLeInfo;
#endif

#ifndef OLDER

nc_type_ncclGetPeerDevicePointer pncclGetPeerDevicePointer;
ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr) {
  fake_note("ncclGetPeerDevicePointer window=%p offset=%zu peer=%d outPtr=%p", (const void *)window, offset, (int)peer, (const void *)outPtr);
  return fake_result;
}
__attribute__((alias("pncclGetPeerDevicePointer"))) nc_type_ncclGetPeerDevicePointer ncclGetPeerDevicePointer;
#endif

nc_type_ncclGetUniqueId pncclGetUniqueId;
ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId) {
  fake_note("ncclGetUniqueId uniqueId=%p", (const void *)uniqueId);
  fake_make_id(uniqueId);
  return fake_result;
}
__attribute__((alias("pncclGetUniqueId"))) nc_type_ncclGetUniqueId ncclGetUniqueId;

nc_type_ncclGetVersion pncclGetVersion;
ncclResult_t pncclGetVersion(int *version) {
  fake_note("ncclGetVersion version=%p", (const void *)version);
  return fake_result;
}
__attribute__((alias("pncclGetVersion"))) nc_type_ncclGetVersion ncclGetVersion;

nc_type_ncclGinBarrierCreateRequirement pncclGinBarrierCreateRequirement;
ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  fake_note("ncclGinBarrierCreateRequirement comm=%p team=%d/%d/%d nBarriers=%d outHandle=%p outReq=%p", (void *)comm, team.nRanks, team.rank, team.stride, (int)nBarriers, (const void *)outHandle, (const void *)outReq);
  return fake_result;
}
__attribute__((alias("pncclGinBarrierCreateRequirement"))) nc_type_ncclGinBarrierCreateRequirement ncclGinBarrierCreateRequirement;

#ifndef OLDER

nc_type_ncclGinInboxA2ACreateRequirement pncclGinInboxA2ACreateRequirement;
ncclResult_t pncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  fake_note("ncclGinInboxA2ACreateRequirement peers=%d/%d/%d nBlocks=%d size_log2=%d outHandle=%p outReq=%p", peers.nRanks, peers.rank, peers.stride, (int)nBlocks, (int)size_log2, (const void *)outHandle, (const void *)outReq);
  return fake_result;
}
__attribute__((alias("pncclGinInboxA2ACreateRequirement"))) nc_type_ncclGinInboxA2ACreateRequirement ncclGinInboxA2ACreateRequirement;
#endif

#ifndef OLDER

nc_type_ncclGinOutboxCreateRequirement pncclGinOutboxCreateRequirement;
ncclResult_t pncclGinOutboxCreateRequirement(int nBlocks, int size_log2, ncclGinOutboxHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  fake_note("ncclGinOutboxCreateRequirement nBlocks=%d size_log2=%d outHandle=%p outReq=%p", (int)nBlocks, (int)size_log2, (const void *)outHandle, (const void *)outReq);
  return fake_result;
}
__attribute__((alias("pncclGinOutboxCreateRequirement"))) nc_type_ncclGinOutboxCreateRequirement ncclGinOutboxCreateRequirement;
#endif

nc_type_ncclGroupEnd pncclGroupEnd;
ncclResult_t pncclGroupEnd(void) {
  fake_note("ncclGroupEnd");
  return fake_result;
}
__attribute__((alias("pncclGroupEnd"))) nc_type_ncclGroupEnd ncclGroupEnd;

nc_type_ncclGroupSimulateEnd pncclGroupSimulateEnd;
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  fake_note("ncclGroupSimulateEnd simInfo=%p", (const void *)simInfo);
  return fake_result;
}
__attribute__((alias("pncclGroupSimulateEnd"))) nc_type_ncclGroupSimulateEnd ncclGroupSimulateEnd;

nc_type_ncclGroupStart pncclGroupStart;
ncclResult_t pncclGroupStart(void) {
  fake_note("ncclGroupStart");
  return fake_result;
}
__attribute__((alias("pncclGroupStart"))) nc_type_ncclGroupStart ncclGroupStart;

nc_type_ncclLLA2ACalcSlots pncclLLA2ACalcSlots;
int pncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  fake_note("ncclLLA2ACalcSlots maxElts=%d maxEltSize=%d", (int)maxElts, (int)maxEltSize);
  return 42;
}
__attribute__((alias("pncclLLA2ACalcSlots"))) nc_type_ncclLLA2ACalcSlots ncclLLA2ACalcSlots;

nc_type_ncclLLA2ACreateRequirement pncclLLA2ACreateRequirement;
ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  fake_note("ncclLLA2ACreateRequirement nBlocks=%d nSlots=%d outHandle=%p outReq=%p", (int)nBlocks, (int)nSlots, (const void *)outHandle, (const void *)outReq);
  return fake_result;
}
__attribute__((alias("pncclLLA2ACreateRequirement"))) nc_type_ncclLLA2ACreateRequirement ncclLLA2ACreateRequirement;

nc_type_ncclLsaBarrierCreateRequirement pncclLsaBarrierCreateRequirement;
ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  fake_note("ncclLsaBarrierCreateRequirement team=%d/%d/%d nBarriers=%d outHandle=%p outReq=%p", team.nRanks, team.rank, team.stride, (int)nBarriers, (const void *)outHandle, (const void *)outReq);
  return fake_result;
}
__attribute__((alias("pncclLsaBarrierCreateRequirement"))) nc_type_ncclLsaBarrierCreateRequirement ncclLsaBarrierCreateRequirement;

nc_type_ncclMemAlloc pncclMemAlloc;
ncclResult_t pncclMemAlloc(void **ptr, size_t size) {
  fake_note("ncclMemAlloc ptr=%p size=%zu", (const void *)ptr, size);
  return fake_result;
}
__attribute__((alias("pncclMemAlloc"))) nc_type_ncclMemAlloc ncclMemAlloc;

nc_type_ncclMemFree pncclMemFree;
ncclResult_t pncclMemFree(void *ptr) {
  fake_note("ncclMemFree ptr=%p", (const void *)ptr);
  return fake_result;
}
__attribute__((alias("pncclMemFree"))) nc_type_ncclMemFree ncclMemFree;

#ifndef OLDER

nc_type_ncclParamBind pncclParamBind;
ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key) {
  fake_note("ncclParamBind out=%p key=%p", (const void *)out, (const void *)key);
  return fake_result;
}
__attribute__((alias("pncclParamBind"))) nc_type_ncclParamBind ncclParamBind;
#endif

#ifndef OLDER

nc_type_ncclParamDumpAll pncclParamDumpAll;
void pncclParamDumpAll(void) {
  fake_note("ncclParamDumpAll");
}
__attribute__((alias("pncclParamDumpAll"))) nc_type_ncclParamDumpAll ncclParamDumpAll;
#endif

#ifndef OLDER

nc_type_ncclParamGet pncclParamGet;
ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  fake_note("ncclParamGet h=%p out=%p maxLen=%d len=%p", (const void *)h, (const void *)out, (int)maxLen, (const void *)len);
  return fake_result;
}
__attribute__((alias("pncclParamGet"))) nc_type_ncclParamGet ncclParamGet;
#endif

#ifndef OLDER

nc_type_ncclParamGetAllParameterKeys pncclParamGetAllParameterKeys;
ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
  fake_note("ncclParamGetAllParameterKeys table=%p tableLen=%p", (const void *)table, (const void *)tableLen);
  return fake_result;
}
__attribute__((alias("pncclParamGetAllParameterKeys"))) nc_type_ncclParamGetAllParameterKeys ncclParamGetAllParameterKeys;
#endif

#ifndef OLDER

nc_type_ncclParamGetI16 pncclParamGetI16;
ncclResult_t pncclParamGetI16(ncclParamHandle_t h, int16_t *out) {
  fake_note("ncclParamGetI16 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetI16"))) nc_type_ncclParamGetI16 ncclParamGetI16;
#endif

#ifndef OLDER

nc_type_ncclParamGetI32 pncclParamGetI32;
ncclResult_t pncclParamGetI32(ncclParamHandle_t h, int32_t *out) {
  fake_note("ncclParamGetI32 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetI32"))) nc_type_ncclParamGetI32 ncclParamGetI32;
#endif

#ifndef OLDER

nc_type_ncclParamGetI64 pncclParamGetI64;
ncclResult_t pncclParamGetI64(ncclParamHandle_t h, int64_t *out) {
  fake_note("ncclParamGetI64 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetI64"))) nc_type_ncclParamGetI64 ncclParamGetI64;
#endif

#ifndef OLDER

nc_type_ncclParamGetI8 pncclParamGetI8;
ncclResult_t pncclParamGetI8(ncclParamHandle_t h, int8_t *out) {
  fake_note("ncclParamGetI8 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetI8"))) nc_type_ncclParamGetI8 ncclParamGetI8;
#endif

#ifndef OLDER

nc_type_ncclParamGetParameter pncclParamGetParameter;
ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen) {
  fake_note("ncclParamGetParameter key=%p value=%p valueLen=%p", (const void *)key, (const void *)value, (const void *)valueLen);
  return fake_result;
}
__attribute__((alias("pncclParamGetParameter"))) nc_type_ncclParamGetParameter ncclParamGetParameter;
#endif

#ifndef OLDER

nc_type_ncclParamGetStr pncclParamGetStr;
ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out) {
  fake_note("ncclParamGetStr h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetStr"))) nc_type_ncclParamGetStr ncclParamGetStr;
#endif

#ifndef OLDER

nc_type_ncclParamGetU16 pncclParamGetU16;
ncclResult_t pncclParamGetU16(ncclParamHandle_t h, uint16_t *out) {
  fake_note("ncclParamGetU16 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetU16"))) nc_type_ncclParamGetU16 ncclParamGetU16;
#endif

#ifndef OLDER

nc_type_ncclParamGetU32 pncclParamGetU32;
ncclResult_t pncclParamGetU32(ncclParamHandle_t h, uint32_t *out) {
  fake_note("ncclParamGetU32 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetU32"))) nc_type_ncclParamGetU32 ncclParamGetU32;
#endif

#ifndef OLDER

nc_type_ncclParamGetU64 pncclParamGetU64;
ncclResult_t pncclParamGetU64(ncclParamHandle_t h, uint64_t *out) {
  fake_note("ncclParamGetU64 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetU64"))) nc_type_ncclParamGetU64 ncclParamGetU64;
#endif

#ifndef OLDER

nc_type_ncclParamGetU8 pncclParamGetU8;
ncclResult_t pncclParamGetU8(ncclParamHandle_t h, uint8_t *out) {
  fake_note("ncclParamGetU8 h=%p out=%p", (const void *)h, (const void *)out);
  return fake_result;
}
__attribute__((alias("pncclParamGetU8"))) nc_type_ncclParamGetU8 ncclParamGetU8;
#endif

#ifndef OLDER

nc_type_ncclPutSignal pncclPutSignal;
ncclResult_t pncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclPutSignal localbuff=%p count=%zu datatype=%d peer=%d peerWin=%p peerWinOffset=%zu sigIdx=%d ctx=%d flags=%d comm=%p stream=%p", (const void *)localbuff, count, (int)datatype, (int)peer, (const void *)peerWin, peerWinOffset, (int)sigIdx, (int)ctx, (int)flags, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclPutSignal"))) nc_type_ncclPutSignal ncclPutSignal;
#endif

nc_type_ncclRecv pncclRecv;
ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclRecv recvbuff=%p count=%zu datatype=%d peer=%d comm=%p stream=%p", (const void *)recvbuff, count, (int)datatype, (int)peer, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclRecv"))) nc_type_ncclRecv ncclRecv;

nc_type_ncclRedOpCreatePreMulSum pncclRedOpCreatePreMulSum;
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm) {
  fake_note("ncclRedOpCreatePreMulSum op=%p scalar=%p datatype=%d residence=%d comm=%p", (const void *)op, (const void *)scalar, (int)datatype, (int)residence, (void *)comm);
  fake_make_op(op);
  return fake_result;
}
__attribute__((alias("pncclRedOpCreatePreMulSum"))) nc_type_ncclRedOpCreatePreMulSum ncclRedOpCreatePreMulSum;

nc_type_ncclRedOpDestroy pncclRedOpDestroy;
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  fake_note("ncclRedOpDestroy op=%d comm=%p", (int)op, (void *)comm);
  return fake_result;
}
__attribute__((alias("pncclRedOpDestroy"))) nc_type_ncclRedOpDestroy ncclRedOpDestroy;

nc_type_ncclReduce pncclReduce;
ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclReduce sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d root=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)op, (int)root, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclReduce"))) nc_type_ncclReduce ncclReduce;

#ifndef OLDER

nc_type_ncclReduceConfig pncclReduceConfig;
ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclReduceConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d op=%d root=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)op, (int)root, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclReduceConfig"))) nc_type_ncclReduceConfig ncclReduceConfig;
#endif

nc_type_ncclReduceScatter pncclReduceScatter;
ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclReduceScatter sendbuff=%p recvbuff=%p recvcount=%zu datatype=%d op=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, recvcount, (int)datatype, (int)op, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclReduceScatter"))) nc_type_ncclReduceScatter ncclReduceScatter;

#ifndef OLDER

nc_type_ncclReduceScatterConfig pncclReduceScatterConfig;
ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclReduceScatterConfig sendbuff=%p recvbuff=%p recvcount=%zu datatype=%d op=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, recvcount, (int)datatype, (int)op, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclReduceScatterConfig"))) nc_type_ncclReduceScatterConfig ncclReduceScatterConfig;
#endif

nc_type_ncclResetDebugInit pncclResetDebugInit;
void pncclResetDebugInit(void) {
  fake_note("ncclResetDebugInit");
}
__attribute__((alias("pncclResetDebugInit"))) nc_type_ncclResetDebugInit ncclResetDebugInit;

nc_type_ncclResetDebugInitInternal pncclResetDebugInitInternal;
void pncclResetDebugInitInternal(void) {
  fake_note("ncclResetDebugInitInternal");
}
__attribute__((alias("pncclResetDebugInitInternal"))) nc_type_ncclResetDebugInitInternal ncclResetDebugInitInternal;

nc_type_ncclScatter pncclScatter;
ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclScatter sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclScatter"))) nc_type_ncclScatter ncclScatter;

#ifndef OLDER

nc_type_ncclScatterConfig pncclScatterConfig;
ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  fake_note("ncclScatterConfig sendbuff=%p recvbuff=%p count=%zu datatype=%d root=%d comm=%p stream=%p config=%p", (const void *)sendbuff, (const void *)recvbuff, count, (int)datatype, (int)root, (void *)comm, (const void *)stream, (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclScatterConfig"))) nc_type_ncclScatterConfig ncclScatterConfig;
#endif

nc_type_ncclSend pncclSend;
ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclSend sendbuff=%p count=%zu datatype=%d peer=%d comm=%p stream=%p", (const void *)sendbuff, count, (int)datatype, (int)peer, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclSend"))) nc_type_ncclSend ncclSend;

#ifndef OLDER

nc_type_ncclSetEncryption pncclSetEncryption;
ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config) {
  fake_note("ncclSetEncryption config=%p", (const void *)config);
  return fake_result;
}
__attribute__((alias("pncclSetEncryption"))) nc_type_ncclSetEncryption ncclSetEncryption;
#endif

#ifndef OLDER

nc_type_ncclSignal pncclSignal;
ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclSignal peer=%d sigIdx=%d ctx=%d flags=%d comm=%p stream=%p", (int)peer, (int)sigIdx, (int)ctx, (int)flags, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclSignal"))) nc_type_ncclSignal ncclSignal;
#endif

#ifndef OLDER

nc_type_ncclTeamCft pncclTeamCft;
ncclTeam_t pncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode) {
  fake_note("ncclTeamCft comm=%p mode=%d", (void *)comm, (int)mode);
  return (ncclTeam_t){7, 8, 9};
}
__attribute__((alias("pncclTeamCft"))) nc_type_ncclTeamCft ncclTeamCft;
#endif

#ifndef OLDER

nc_type_ncclTeamCftMultimem pncclTeamCftMultimem;
ncclTeam_t pncclTeamCftMultimem(ncclComm_t comm) {
  fake_note("ncclTeamCftMultimem comm=%p", (void *)comm);
  return (ncclTeam_t){7, 8, 9};
}
__attribute__((alias("pncclTeamCftMultimem"))) nc_type_ncclTeamCftMultimem ncclTeamCftMultimem;
#endif

nc_type_ncclTeamLsa pncclTeamLsa;
ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  fake_note("ncclTeamLsa comm=%p", (void *)comm);
  return (ncclTeam_t){7, 8, 9};
}
__attribute__((alias("pncclTeamLsa"))) nc_type_ncclTeamLsa ncclTeamLsa;

nc_type_ncclTeamRail pncclTeamRail;
ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  fake_note("ncclTeamRail comm=%p", (void *)comm);
  return (ncclTeam_t){7, 8, 9};
}
__attribute__((alias("pncclTeamRail"))) nc_type_ncclTeamRail ncclTeamRail;

nc_type_ncclTeamRankToLsa pncclTeamRankToLsa;
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  fake_note("ncclTeamRankToLsa comm=%p team=%d/%d/%d rank=%d", (void *)comm, team.nRanks, team.rank, team.stride, (int)rank);
  return 42;
}
__attribute__((alias("pncclTeamRankToLsa"))) nc_type_ncclTeamRankToLsa ncclTeamRankToLsa;

nc_type_ncclTeamRankToWorld pncclTeamRankToWorld;
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  fake_note("ncclTeamRankToWorld comm=%p team=%d/%d/%d rank=%d", (void *)comm, team.nRanks, team.rank, team.stride, (int)rank);
  return 42;
}
__attribute__((alias("pncclTeamRankToWorld"))) nc_type_ncclTeamRankToWorld ncclTeamRankToWorld;

nc_type_ncclTeamWorld pncclTeamWorld;
ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  fake_note("ncclTeamWorld comm=%p", (void *)comm);
  return (ncclTeam_t){7, 8, 9};
}
__attribute__((alias("pncclTeamWorld"))) nc_type_ncclTeamWorld ncclTeamWorld;

#ifndef OLDER

nc_type_ncclWaitSignal pncclWaitSignal;
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream) {
  fake_note("ncclWaitSignal nDesc=%d signalDescs=%p comm=%p stream=%p", (int)nDesc, (const void *)signalDescs, (void *)comm, (const void *)stream);
  return fake_result;
}
__attribute__((alias("pncclWaitSignal"))) nc_type_ncclWaitSignal ncclWaitSignal;
#endif

#ifndef OLDER

nc_type_ncclWinGetUserPtr pncclWinGetUserPtr;
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr) {
  fake_note("ncclWinGetUserPtr comm=%p win=%p outUserPtr=%p", (void *)comm, (const void *)win, (const void *)outUserPtr);
  return fake_result;
}
__attribute__((alias("pncclWinGetUserPtr"))) nc_type_ncclWinGetUserPtr ncclWinGetUserPtr;
#endif
