/* Code generated from capi/nccl/symbols.json by gennccl. DO NOT EDIT. */
#include "nc.h"
#include "real.h"
#include "watch.h"

#define API __attribute__((visibility("default")))

API nc_type_ncclAllGather pncclAllGather;
API ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclAllGather);
  if (real == NULL)
    return nc_AllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream);
  nc_type_ncclAllGather *function = (nc_type_ncclAllGather *)nc_real(NC_ncclAllGather);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAllGather);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_GATHER, (int64_t)sendcount, datatype, -1, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, sendcount, datatype, real, stream));
}
API __attribute__((weak, alias("pncclAllGather"))) nc_type_ncclAllGather ncclAllGather;

API nc_type_ncclAllGatherConfig pncclAllGatherConfig;
API ncclResult_t pncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_of(comm, NC_ncclAllGatherConfig);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclAllGatherConfig);
    return checked == ncclSuccess ? nc_AllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream) : checked;
  }
  nc_type_ncclAllGatherConfig *function = (nc_type_ncclAllGatherConfig *)nc_real(NC_ncclAllGatherConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAllGatherConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_GATHER, (int64_t)sendcount, datatype, -1, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, sendcount, datatype, real, stream, config));
}
API __attribute__((weak, alias("pncclAllGatherConfig"))) nc_type_ncclAllGatherConfig ncclAllGatherConfig;

API nc_type_ncclAllReduce pncclAllReduce;
API ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclAllReduce, &op);
  if (real == NULL)
    return nc_AllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  nc_type_ncclAllReduce *function = (nc_type_ncclAllReduce *)nc_real(NC_ncclAllReduce);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAllReduce);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_REDUCE, (int64_t)count, datatype, op, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, op, real, stream));
}
API __attribute__((weak, alias("pncclAllReduce"))) nc_type_ncclAllReduce ncclAllReduce;

API nc_type_ncclAllReduceConfig pncclAllReduceConfig;
API ncclResult_t pncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclAllReduceConfig, &op);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclAllReduceConfig);
    return checked == ncclSuccess ? nc_AllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream) : checked;
  }
  nc_type_ncclAllReduceConfig *function = (nc_type_ncclAllReduceConfig *)nc_real(NC_ncclAllReduceConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAllReduceConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_REDUCE, (int64_t)count, datatype, op, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, op, real, stream, config));
}
API __attribute__((weak, alias("pncclAllReduceConfig"))) nc_type_ncclAllReduceConfig ncclAllReduceConfig;

API nc_type_ncclAlltoAll pncclAlltoAll;
API ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclAlltoAll);
  if (real == NULL)
    return nc_AlltoAll(sendbuff, recvbuff, count, datatype, comm, stream);
  nc_type_ncclAlltoAll *function = (nc_type_ncclAlltoAll *)nc_real(NC_ncclAlltoAll);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAlltoAll);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_TO_ALL, (int64_t)count, datatype, -1, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, real, stream));
}
API __attribute__((weak, alias("pncclAlltoAll"))) nc_type_ncclAlltoAll ncclAlltoAll;

API nc_type_ncclAlltoAllConfig pncclAlltoAllConfig;
API ncclResult_t pncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_of(comm, NC_ncclAlltoAllConfig);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclAlltoAllConfig);
    return checked == ncclSuccess ? nc_AlltoAll(sendbuff, recvbuff, count, datatype, comm, stream) : checked;
  }
  nc_type_ncclAlltoAllConfig *function = (nc_type_ncclAlltoAllConfig *)nc_real(NC_ncclAlltoAllConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclAlltoAllConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_ALL_TO_ALL, (int64_t)count, datatype, -1, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, real, stream, config));
}
API __attribute__((weak, alias("pncclAlltoAllConfig"))) nc_type_ncclAlltoAllConfig ncclAlltoAllConfig;

API nc_type_ncclBcast pncclBcast;
API ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclBcast);
  if (real == NULL)
    return nc_Bcast(buff, count, datatype, root, comm, stream);
  nc_type_ncclBcast *function = (nc_type_ncclBcast *)nc_real(NC_ncclBcast);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclBcast);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_BROADCAST, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(buff, count, datatype, root, real, stream));
}
API __attribute__((weak, alias("pncclBcast"))) nc_type_ncclBcast ncclBcast;

API nc_type_ncclBroadcast pncclBroadcast;
API ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclBroadcast);
  if (real == NULL)
    return nc_Broadcast(sendbuff, recvbuff, count, datatype, root, comm, stream);
  nc_type_ncclBroadcast *function = (nc_type_ncclBroadcast *)nc_real(NC_ncclBroadcast);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclBroadcast);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_BROADCAST, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream));
}
API __attribute__((weak, alias("pncclBroadcast"))) nc_type_ncclBroadcast ncclBroadcast;

API nc_type_ncclBroadcastConfig pncclBroadcastConfig;
API ncclResult_t pncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_of(comm, NC_ncclBroadcastConfig);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclBroadcastConfig);
    return checked == ncclSuccess ? nc_Broadcast(sendbuff, recvbuff, count, datatype, root, comm, stream) : checked;
  }
  nc_type_ncclBroadcastConfig *function = (nc_type_ncclBroadcastConfig *)nc_real(NC_ncclBroadcastConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclBroadcastConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_BROADCAST, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream, config));
}
API __attribute__((weak, alias("pncclBroadcastConfig"))) nc_type_ncclBroadcastConfig ncclBroadcastConfig;

API nc_type_ncclCommAbort pncclCommAbort;
API ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return nc_CommAbort(comm);
}
API __attribute__((weak, alias("pncclCommAbort"))) nc_type_ncclCommAbort ncclCommAbort;

API nc_type_ncclCommCount pncclCommCount;
API ncclResult_t pncclCommCount(ncclComm_t comm, int *count) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommCount(comm, count);
  nc_type_ncclCommCount *function = (nc_type_ncclCommCount *)nc_real(NC_ncclCommCount);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommCount);
  return nc_came(comm, function(real, count));
}
API __attribute__((weak, alias("pncclCommCount"))) nc_type_ncclCommCount ncclCommCount;

API nc_type_ncclCommCuDevice pncclCommCuDevice;
API ncclResult_t pncclCommCuDevice(ncclComm_t comm, int *device) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommCuDevice(comm, device);
  nc_type_ncclCommCuDevice *function = (nc_type_ncclCommCuDevice *)nc_real(NC_ncclCommCuDevice);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommCuDevice);
  return nc_came(comm, function(real, device));
}
API __attribute__((weak, alias("pncclCommCuDevice"))) nc_type_ncclCommCuDevice ncclCommCuDevice;

API nc_type_ncclCommDeregister pncclCommDeregister;
API ncclResult_t pncclCommDeregister(ncclComm_t comm, void *handle) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommDeregister(comm, handle);
  nc_type_ncclCommDeregister *function = (nc_type_ncclCommDeregister *)nc_real(NC_ncclCommDeregister);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommDeregister);
  return nc_came(comm, function(real, handle));
}
API __attribute__((weak, alias("pncclCommDeregister"))) nc_type_ncclCommDeregister ncclCommDeregister;

API nc_type_ncclCommDestroy pncclCommDestroy;
API ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return nc_CommDestroy(comm);
}
API __attribute__((weak, alias("pncclCommDestroy"))) nc_type_ncclCommDestroy ncclCommDestroy;

API nc_type_ncclCommFinalize pncclCommFinalize;
API ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return nc_CommFinalize(comm);
}
API __attribute__((weak, alias("pncclCommFinalize"))) nc_type_ncclCommFinalize ncclCommFinalize;

API nc_type_ncclCommGetAsyncError pncclCommGetAsyncError;
API ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  return nc_CommGetAsyncError(comm, asyncError);
}
API __attribute__((weak, alias("pncclCommGetAsyncError"))) nc_type_ncclCommGetAsyncError ncclCommGetAsyncError;

API nc_type_ncclCommGetUniqueId pncclCommGetUniqueId;
API ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclCommGetUniqueId);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclCommGetUniqueId);
  nc_type_ncclCommGetUniqueId *function = (nc_type_ncclCommGetUniqueId *)nc_real(NC_ncclCommGetUniqueId);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommGetUniqueId);
  return nc_came(comm, function(real, uniqueId));
}
API __attribute__((weak, alias("pncclCommGetUniqueId"))) nc_type_ncclCommGetUniqueId ncclCommGetUniqueId;

API nc_type_ncclCommGrow pncclCommGrow;
API ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config) {
  return nc_CommGrow(comm, nRanks, uniqueId, rank, newcomm, config);
}
API __attribute__((weak, alias("pncclCommGrow"))) nc_type_ncclCommGrow ncclCommGrow;

API nc_type_ncclCommInitAll pncclCommInitAll;
API ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
  return nc_CommInitAll(comm, ndev, devlist);
}
API __attribute__((weak, alias("pncclCommInitAll"))) nc_type_ncclCommInitAll ncclCommInitAll;

API nc_type_ncclCommInitRank pncclCommInitRank;
API ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
  return nc_CommInitRank(comm, nranks, commId, rank);
}
API __attribute__((weak, alias("pncclCommInitRank"))) nc_type_ncclCommInitRank ncclCommInitRank;

API nc_type_ncclCommInitRankConfig pncclCommInitRankConfig;
API ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config) {
  return nc_CommInitRankConfig(comm, nranks, commId, rank, config);
}
API __attribute__((weak, alias("pncclCommInitRankConfig"))) nc_type_ncclCommInitRankConfig ncclCommInitRankConfig;

API nc_type_ncclCommInitRankScalable pncclCommInitRankScalable;
API ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config) {
  return nc_CommInitRankScalable(newcomm, nranks, myrank, nId, commIds, config);
}
API __attribute__((weak, alias("pncclCommInitRankScalable"))) nc_type_ncclCommInitRankScalable ncclCommInitRankScalable;

API nc_type_ncclCommMemStats pncclCommMemStats;
API ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclCommMemStats);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclCommMemStats);
  nc_type_ncclCommMemStats *function = (nc_type_ncclCommMemStats *)nc_real(NC_ncclCommMemStats);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommMemStats);
  return nc_came(comm, function(real, stat, value));
}
API __attribute__((weak, alias("pncclCommMemStats"))) nc_type_ncclCommMemStats ncclCommMemStats;

API nc_type_ncclCommQueryProperties pncclCommQueryProperties;
API ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclCommQueryProperties);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclCommQueryProperties);
  nc_type_ncclCommQueryProperties *function = (nc_type_ncclCommQueryProperties *)nc_real(NC_ncclCommQueryProperties);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommQueryProperties);
  return nc_came(comm, function(real, props));
}
API __attribute__((weak, alias("pncclCommQueryProperties"))) nc_type_ncclCommQueryProperties ncclCommQueryProperties;

API nc_type_ncclCommRegister pncclCommRegister;
API ncclResult_t pncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommRegister(comm, buff, size, handle);
  nc_type_ncclCommRegister *function = (nc_type_ncclCommRegister *)nc_real(NC_ncclCommRegister);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommRegister);
  return nc_came(comm, function(real, buff, size, handle));
}
API __attribute__((weak, alias("pncclCommRegister"))) nc_type_ncclCommRegister ncclCommRegister;

API nc_type_ncclCommResume pncclCommResume;
API ncclResult_t pncclCommResume(ncclComm_t comm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclCommResume);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclCommResume);
  nc_type_ncclCommResume *function = (nc_type_ncclCommResume *)nc_real(NC_ncclCommResume);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommResume);
  return nc_came(comm, function(real));
}
API __attribute__((weak, alias("pncclCommResume"))) nc_type_ncclCommResume ncclCommResume;

API nc_type_ncclCommRevoke pncclCommRevoke;
API ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommRevoke(comm, revokeFlags);
  nc_type_ncclCommRevoke *function = (nc_type_ncclCommRevoke *)nc_real(NC_ncclCommRevoke);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommRevoke);
  return nc_came(comm, function(real, revokeFlags));
}
API __attribute__((weak, alias("pncclCommRevoke"))) nc_type_ncclCommRevoke ncclCommRevoke;

API nc_type_ncclCommShrink pncclCommShrink;
API ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
  return nc_CommShrink(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
}
API __attribute__((weak, alias("pncclCommShrink"))) nc_type_ncclCommShrink ncclCommShrink;

API nc_type_ncclCommSplit pncclCommSplit;
API ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
  return nc_CommSplit(comm, color, key, newcomm, config);
}
API __attribute__((weak, alias("pncclCommSplit"))) nc_type_ncclCommSplit ncclCommSplit;

API nc_type_ncclCommSuspend pncclCommSuspend;
API ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclCommSuspend);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclCommSuspend);
  nc_type_ncclCommSuspend *function = (nc_type_ncclCommSuspend *)nc_real(NC_ncclCommSuspend);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommSuspend);
  return nc_came(comm, function(real, flags));
}
API __attribute__((weak, alias("pncclCommSuspend"))) nc_type_ncclCommSuspend ncclCommSuspend;

API nc_type_ncclCommUserRank pncclCommUserRank;
API ncclResult_t pncclCommUserRank(ncclComm_t comm, int *rank) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_CommUserRank(comm, rank);
  nc_type_ncclCommUserRank *function = (nc_type_ncclCommUserRank *)nc_real(NC_ncclCommUserRank);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommUserRank);
  return nc_came(comm, function(real, rank));
}
API __attribute__((weak, alias("pncclCommUserRank"))) nc_type_ncclCommUserRank ncclCommUserRank;

API nc_type_ncclCommWindowDeregister pncclCommWindowDeregister;
API ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  ncclComm_t real = nc_real_of(comm, NC_ncclCommWindowDeregister);
  if (real == NULL)
    return nc_CommWindowDeregister(comm, win);
  nc_type_ncclCommWindowDeregister *function = (nc_type_ncclCommWindowDeregister *)nc_real(NC_ncclCommWindowDeregister);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommWindowDeregister);
  return nc_came(comm, function(real, win));
}
API __attribute__((weak, alias("pncclCommWindowDeregister"))) nc_type_ncclCommWindowDeregister ncclCommWindowDeregister;

API nc_type_ncclCommWindowRegister pncclCommWindowRegister;
API ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags) {
  ncclComm_t real = nc_real_of(comm, NC_ncclCommWindowRegister);
  if (real == NULL)
    return nc_CommWindowRegister(comm, buff, size, win, winFlags);
  nc_type_ncclCommWindowRegister *function = (nc_type_ncclCommWindowRegister *)nc_real(NC_ncclCommWindowRegister);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclCommWindowRegister);
  return nc_came(comm, function(real, buff, size, win, winFlags));
}
API __attribute__((weak, alias("pncclCommWindowRegister"))) nc_type_ncclCommWindowRegister ncclCommWindowRegister;

API nc_type_ncclDevCommCreate pncclDevCommCreate;
API ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclDevCommCreate);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclDevCommCreate);
  nc_type_ncclDevCommCreate *function = (nc_type_ncclDevCommCreate *)nc_real(NC_ncclDevCommCreate);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclDevCommCreate);
  return nc_came(comm, function(real, reqs, outDevComm));
}
API __attribute__((weak, alias("pncclDevCommCreate"))) nc_type_ncclDevCommCreate ncclDevCommCreate;

API nc_type_ncclDevCommDestroy pncclDevCommDestroy;
API ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclDevCommDestroy);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclDevCommDestroy);
  nc_type_ncclDevCommDestroy *function = (nc_type_ncclDevCommDestroy *)nc_real(NC_ncclDevCommDestroy);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclDevCommDestroy);
  return nc_came(comm, function(real, devComm));
}
API __attribute__((weak, alias("pncclDevCommDestroy"))) nc_type_ncclDevCommDestroy ncclDevCommDestroy;

API nc_type_ncclGather pncclGather;
API ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclGather);
  if (real == NULL)
    return nc_Gather(sendbuff, recvbuff, count, datatype, root, comm, stream);
  nc_type_ncclGather *function = (nc_type_ncclGather *)nc_real(NC_ncclGather);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclGather);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_GATHER, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream));
}
API __attribute__((weak, alias("pncclGather"))) nc_type_ncclGather ncclGather;

API nc_type_ncclGatherConfig pncclGatherConfig;
API ncclResult_t pncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_of(comm, NC_ncclGatherConfig);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclGatherConfig);
    return checked == ncclSuccess ? nc_Gather(sendbuff, recvbuff, count, datatype, root, comm, stream) : checked;
  }
  nc_type_ncclGatherConfig *function = (nc_type_ncclGatherConfig *)nc_real(NC_ncclGatherConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclGatherConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_GATHER, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream, config));
}
API __attribute__((weak, alias("pncclGatherConfig"))) nc_type_ncclGatherConfig ncclGatherConfig;

API nc_type_ncclGetCftDeviceLeInfo pncclGetCftDeviceLeInfo;
API ncclResult_t pncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId_t *leId, size_t *leOffset) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetCftDeviceLeInfo);
  nc_type_ncclGetCftDeviceLeInfo *function = (nc_type_ncclGetCftDeviceLeInfo *)nc_real(NC_ncclGetCftDeviceLeInfo);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetCftDeviceLeInfo);
  return nc_came(NULL, function(window, offset, peerCft, cftTeam, leId, leOffset));
}
API __attribute__((weak, alias("pncclGetCftDeviceLeInfo"))) nc_type_ncclGetCftDeviceLeInfo ncclGetCftDeviceLeInfo;

API nc_type_ncclGetErrorString pncclGetErrorString;
API const char *pncclGetErrorString(ncclResult_t result) {
  return nc_GetErrorString(result);
}
API __attribute__((weak, alias("pncclGetErrorString"))) nc_type_ncclGetErrorString ncclGetErrorString;

API nc_type_ncclGetLastError pncclGetLastError;
API const char *pncclGetLastError(ncclComm_t comm) {
  return nc_GetLastError(comm);
}
API __attribute__((weak, alias("pncclGetLastError"))) nc_type_ncclGetLastError ncclGetLastError;

API nc_type_ncclGetLsaDevicePointer pncclGetLsaDevicePointer;
API ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetLsaDevicePointer);
  nc_type_ncclGetLsaDevicePointer *function = (nc_type_ncclGetLsaDevicePointer *)nc_real(NC_ncclGetLsaDevicePointer);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetLsaDevicePointer);
  return nc_came(NULL, function(window, offset, lsaRank, outPtr));
}
API __attribute__((weak, alias("pncclGetLsaDevicePointer"))) nc_type_ncclGetLsaDevicePointer ncclGetLsaDevicePointer;

API nc_type_ncclGetLsaMultimemDevicePointer pncclGetLsaMultimemDevicePointer;
API ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetLsaMultimemDevicePointer);
  nc_type_ncclGetLsaMultimemDevicePointer *function = (nc_type_ncclGetLsaMultimemDevicePointer *)nc_real(NC_ncclGetLsaMultimemDevicePointer);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetLsaMultimemDevicePointer);
  return nc_came(NULL, function(window, offset, outPtr));
}
API __attribute__((weak, alias("pncclGetLsaMultimemDevicePointer"))) nc_type_ncclGetLsaMultimemDevicePointer ncclGetLsaMultimemDevicePointer;

API nc_type_ncclGetMultimemDeviceLeInfo pncclGetMultimemDeviceLeInfo;
API ncclResult_t pncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId_t *leId, size_t *leOffset) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetMultimemDeviceLeInfo);
  nc_type_ncclGetMultimemDeviceLeInfo *function = (nc_type_ncclGetMultimemDeviceLeInfo *)nc_real(NC_ncclGetMultimemDeviceLeInfo);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetMultimemDeviceLeInfo);
  return nc_came(NULL, function(window, offset, leId, leOffset));
}
API __attribute__((weak, alias("pncclGetMultimemDeviceLeInfo"))) nc_type_ncclGetMultimemDeviceLeInfo ncclGetMultimemDeviceLeInfo;

API nc_type_ncclGetMultimemDevicePointer pncclGetMultimemDevicePointer;
API ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **outPtr) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetMultimemDevicePointer);
  nc_type_ncclGetMultimemDevicePointer *function = (nc_type_ncclGetMultimemDevicePointer *)nc_real(NC_ncclGetMultimemDevicePointer);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetMultimemDevicePointer);
  return nc_came(NULL, function(window, offset, multimem, outPtr));
}
API __attribute__((weak, alias("pncclGetMultimemDevicePointer"))) nc_type_ncclGetMultimemDevicePointer ncclGetMultimemDevicePointer;

API nc_type_ncclGetPeerDeviceLeInfo pncclGetPeerDeviceLeInfo;
API ncclResult_t pncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId_t *leId, size_t *leOffset) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetPeerDeviceLeInfo);
  nc_type_ncclGetPeerDeviceLeInfo *function = (nc_type_ncclGetPeerDeviceLeInfo *)nc_real(NC_ncclGetPeerDeviceLeInfo);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetPeerDeviceLeInfo);
  return nc_came(NULL, function(window, offset, peerWorld, leId, leOffset));
}
API __attribute__((weak, alias("pncclGetPeerDeviceLeInfo"))) nc_type_ncclGetPeerDeviceLeInfo ncclGetPeerDeviceLeInfo;

API nc_type_ncclGetPeerDevicePointer pncclGetPeerDevicePointer;
API ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr) {
  if (nc_is_window(window))
    return nc_not_served(NULL, NC_ncclGetPeerDevicePointer);
  nc_type_ncclGetPeerDevicePointer *function = (nc_type_ncclGetPeerDevicePointer *)nc_real(NC_ncclGetPeerDevicePointer);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGetPeerDevicePointer);
  return nc_came(NULL, function(window, offset, peer, outPtr));
}
API __attribute__((weak, alias("pncclGetPeerDevicePointer"))) nc_type_ncclGetPeerDevicePointer ncclGetPeerDevicePointer;

API nc_type_ncclGetUniqueId pncclGetUniqueId;
API ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId) {
  return nc_GetUniqueId(uniqueId);
}
API __attribute__((weak, alias("pncclGetUniqueId"))) nc_type_ncclGetUniqueId ncclGetUniqueId;

API nc_type_ncclGetVersion pncclGetVersion;
API ncclResult_t pncclGetVersion(int *version) {
  return nc_GetVersion(version);
}
API __attribute__((weak, alias("pncclGetVersion"))) nc_type_ncclGetVersion ncclGetVersion;

API nc_type_ncclGinBarrierCreateRequirement pncclGinBarrierCreateRequirement;
API ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclGinBarrierCreateRequirement);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclGinBarrierCreateRequirement);
  nc_type_ncclGinBarrierCreateRequirement *function = (nc_type_ncclGinBarrierCreateRequirement *)nc_real(NC_ncclGinBarrierCreateRequirement);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclGinBarrierCreateRequirement);
  return nc_came(comm, function(real, team, nBarriers, outHandle, outReq));
}
API __attribute__((weak, alias("pncclGinBarrierCreateRequirement"))) nc_type_ncclGinBarrierCreateRequirement ncclGinBarrierCreateRequirement;

API nc_type_ncclGinInboxA2ACreateRequirement pncclGinInboxA2ACreateRequirement;
API ncclResult_t pncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  nc_type_ncclGinInboxA2ACreateRequirement *function = (nc_type_ncclGinInboxA2ACreateRequirement *)nc_real(NC_ncclGinInboxA2ACreateRequirement);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGinInboxA2ACreateRequirement);
  return nc_came(NULL, function(peers, nBlocks, size_log2, outHandle, outReq));
}
API __attribute__((weak, alias("pncclGinInboxA2ACreateRequirement"))) nc_type_ncclGinInboxA2ACreateRequirement ncclGinInboxA2ACreateRequirement;

API nc_type_ncclGinOutboxCreateRequirement pncclGinOutboxCreateRequirement;
API ncclResult_t pncclGinOutboxCreateRequirement(int nBlocks, int size_log2, ncclGinOutboxHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  nc_type_ncclGinOutboxCreateRequirement *function = (nc_type_ncclGinOutboxCreateRequirement *)nc_real(NC_ncclGinOutboxCreateRequirement);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclGinOutboxCreateRequirement);
  return nc_came(NULL, function(nBlocks, size_log2, outHandle, outReq));
}
API __attribute__((weak, alias("pncclGinOutboxCreateRequirement"))) nc_type_ncclGinOutboxCreateRequirement ncclGinOutboxCreateRequirement;

API nc_type_ncclGroupEnd pncclGroupEnd;
API ncclResult_t pncclGroupEnd(void) {
  return nc_GroupEnd();
}
API __attribute__((weak, alias("pncclGroupEnd"))) nc_type_ncclGroupEnd ncclGroupEnd;

API nc_type_ncclGroupSimulateEnd pncclGroupSimulateEnd;
API ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  return nc_GroupSimulateEnd(simInfo);
}
API __attribute__((weak, alias("pncclGroupSimulateEnd"))) nc_type_ncclGroupSimulateEnd ncclGroupSimulateEnd;

API nc_type_ncclGroupStart pncclGroupStart;
API ncclResult_t pncclGroupStart(void) {
  return nc_GroupStart();
}
API __attribute__((weak, alias("pncclGroupStart"))) nc_type_ncclGroupStart ncclGroupStart;

API nc_type_ncclLLA2ACalcSlots pncclLLA2ACalcSlots;
API int pncclLLA2ACalcSlots(int maxElts, int maxEltSize) {
  nc_type_ncclLLA2ACalcSlots *function = (nc_type_ncclLLA2ACalcSlots *)nc_real(NC_ncclLLA2ACalcSlots);
  if (function == NULL)
    return ((void)nc_lacks(NULL, NC_ncclLLA2ACalcSlots), -1);
  return function(maxElts, maxEltSize);
}
API __attribute__((weak, alias("pncclLLA2ACalcSlots"))) nc_type_ncclLLA2ACalcSlots ncclLLA2ACalcSlots;

API nc_type_ncclLLA2ACreateRequirement pncclLLA2ACreateRequirement;
API ncclResult_t pncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  nc_type_ncclLLA2ACreateRequirement *function = (nc_type_ncclLLA2ACreateRequirement *)nc_real(NC_ncclLLA2ACreateRequirement);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclLLA2ACreateRequirement);
  return nc_came(NULL, function(nBlocks, nSlots, outHandle, outReq));
}
API __attribute__((weak, alias("pncclLLA2ACreateRequirement"))) nc_type_ncclLLA2ACreateRequirement ncclLLA2ACreateRequirement;

API nc_type_ncclLsaBarrierCreateRequirement pncclLsaBarrierCreateRequirement;
API ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq) {
  nc_type_ncclLsaBarrierCreateRequirement *function = (nc_type_ncclLsaBarrierCreateRequirement *)nc_real(NC_ncclLsaBarrierCreateRequirement);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclLsaBarrierCreateRequirement);
  return nc_came(NULL, function(team, nBarriers, outHandle, outReq));
}
API __attribute__((weak, alias("pncclLsaBarrierCreateRequirement"))) nc_type_ncclLsaBarrierCreateRequirement ncclLsaBarrierCreateRequirement;

API nc_type_ncclMemAlloc pncclMemAlloc;
API ncclResult_t pncclMemAlloc(void **ptr, size_t size) {
  return nc_MemAlloc(ptr, size);
}
API __attribute__((weak, alias("pncclMemAlloc"))) nc_type_ncclMemAlloc ncclMemAlloc;

API nc_type_ncclMemFree pncclMemFree;
API ncclResult_t pncclMemFree(void *ptr) {
  return nc_MemFree(ptr);
}
API __attribute__((weak, alias("pncclMemFree"))) nc_type_ncclMemFree ncclMemFree;

API nc_type_ncclParamBind pncclParamBind;
API ncclResult_t pncclParamBind(ncclParamHandle_t *out, const char *key) {
  nc_type_ncclParamBind *function = (nc_type_ncclParamBind *)nc_real(NC_ncclParamBind);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamBind);
  return nc_came(NULL, function(out, key));
}
API __attribute__((weak, alias("pncclParamBind"))) nc_type_ncclParamBind ncclParamBind;

API nc_type_ncclParamDumpAll pncclParamDumpAll;
API void pncclParamDumpAll(void) {
  nc_type_ncclParamDumpAll *function = (nc_type_ncclParamDumpAll *)nc_real(NC_ncclParamDumpAll);
  if (function != NULL)
    function();
}
API __attribute__((weak, alias("pncclParamDumpAll"))) nc_type_ncclParamDumpAll ncclParamDumpAll;

API nc_type_ncclParamGet pncclParamGet;
API ncclResult_t pncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  nc_type_ncclParamGet *function = (nc_type_ncclParamGet *)nc_real(NC_ncclParamGet);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGet);
  return nc_came(NULL, function(h, out, maxLen, len));
}
API __attribute__((weak, alias("pncclParamGet"))) nc_type_ncclParamGet ncclParamGet;

API nc_type_ncclParamGetAllParameterKeys pncclParamGetAllParameterKeys;
API ncclResult_t pncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
  nc_type_ncclParamGetAllParameterKeys *function = (nc_type_ncclParamGetAllParameterKeys *)nc_real(NC_ncclParamGetAllParameterKeys);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetAllParameterKeys);
  return nc_came(NULL, function(table, tableLen));
}
API __attribute__((weak, alias("pncclParamGetAllParameterKeys"))) nc_type_ncclParamGetAllParameterKeys ncclParamGetAllParameterKeys;

API nc_type_ncclParamGetI16 pncclParamGetI16;
API ncclResult_t pncclParamGetI16(ncclParamHandle_t h, int16_t *out) {
  nc_type_ncclParamGetI16 *function = (nc_type_ncclParamGetI16 *)nc_real(NC_ncclParamGetI16);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetI16);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetI16"))) nc_type_ncclParamGetI16 ncclParamGetI16;

API nc_type_ncclParamGetI32 pncclParamGetI32;
API ncclResult_t pncclParamGetI32(ncclParamHandle_t h, int32_t *out) {
  nc_type_ncclParamGetI32 *function = (nc_type_ncclParamGetI32 *)nc_real(NC_ncclParamGetI32);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetI32);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetI32"))) nc_type_ncclParamGetI32 ncclParamGetI32;

API nc_type_ncclParamGetI64 pncclParamGetI64;
API ncclResult_t pncclParamGetI64(ncclParamHandle_t h, int64_t *out) {
  nc_type_ncclParamGetI64 *function = (nc_type_ncclParamGetI64 *)nc_real(NC_ncclParamGetI64);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetI64);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetI64"))) nc_type_ncclParamGetI64 ncclParamGetI64;

API nc_type_ncclParamGetI8 pncclParamGetI8;
API ncclResult_t pncclParamGetI8(ncclParamHandle_t h, int8_t *out) {
  nc_type_ncclParamGetI8 *function = (nc_type_ncclParamGetI8 *)nc_real(NC_ncclParamGetI8);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetI8);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetI8"))) nc_type_ncclParamGetI8 ncclParamGetI8;

API nc_type_ncclParamGetParameter pncclParamGetParameter;
API ncclResult_t pncclParamGetParameter(const char *key, const char **value, int *valueLen) {
  nc_type_ncclParamGetParameter *function = (nc_type_ncclParamGetParameter *)nc_real(NC_ncclParamGetParameter);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetParameter);
  return nc_came(NULL, function(key, value, valueLen));
}
API __attribute__((weak, alias("pncclParamGetParameter"))) nc_type_ncclParamGetParameter ncclParamGetParameter;

API nc_type_ncclParamGetStr pncclParamGetStr;
API ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char **out) {
  nc_type_ncclParamGetStr *function = (nc_type_ncclParamGetStr *)nc_real(NC_ncclParamGetStr);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetStr);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetStr"))) nc_type_ncclParamGetStr ncclParamGetStr;

API nc_type_ncclParamGetU16 pncclParamGetU16;
API ncclResult_t pncclParamGetU16(ncclParamHandle_t h, uint16_t *out) {
  nc_type_ncclParamGetU16 *function = (nc_type_ncclParamGetU16 *)nc_real(NC_ncclParamGetU16);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetU16);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetU16"))) nc_type_ncclParamGetU16 ncclParamGetU16;

API nc_type_ncclParamGetU32 pncclParamGetU32;
API ncclResult_t pncclParamGetU32(ncclParamHandle_t h, uint32_t *out) {
  nc_type_ncclParamGetU32 *function = (nc_type_ncclParamGetU32 *)nc_real(NC_ncclParamGetU32);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetU32);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetU32"))) nc_type_ncclParamGetU32 ncclParamGetU32;

API nc_type_ncclParamGetU64 pncclParamGetU64;
API ncclResult_t pncclParamGetU64(ncclParamHandle_t h, uint64_t *out) {
  nc_type_ncclParamGetU64 *function = (nc_type_ncclParamGetU64 *)nc_real(NC_ncclParamGetU64);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetU64);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetU64"))) nc_type_ncclParamGetU64 ncclParamGetU64;

API nc_type_ncclParamGetU8 pncclParamGetU8;
API ncclResult_t pncclParamGetU8(ncclParamHandle_t h, uint8_t *out) {
  nc_type_ncclParamGetU8 *function = (nc_type_ncclParamGetU8 *)nc_real(NC_ncclParamGetU8);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclParamGetU8);
  return nc_came(NULL, function(h, out));
}
API __attribute__((weak, alias("pncclParamGetU8"))) nc_type_ncclParamGetU8 ncclParamGetU8;

API nc_type_ncclPutSignal pncclPutSignal;
API ncclResult_t pncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclPutSignal);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclPutSignal);
  nc_type_ncclPutSignal *function = (nc_type_ncclPutSignal *)nc_real(NC_ncclPutSignal);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclPutSignal);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_PUT, (int64_t)count, datatype, -1, peer, stream);
  return nc_watched(comm, mark, function(localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags, real, stream));
}
API __attribute__((weak, alias("pncclPutSignal"))) nc_type_ncclPutSignal ncclPutSignal;

API nc_type_ncclRecv pncclRecv;
API ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclRecv);
  if (real == NULL)
    return nc_Recv(recvbuff, count, datatype, peer, comm, stream);
  nc_type_ncclRecv *function = (nc_type_ncclRecv *)nc_real(NC_ncclRecv);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclRecv);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_RECV, (int64_t)count, datatype, -1, peer, stream);
  return nc_watched(comm, mark, function(recvbuff, count, datatype, peer, real, stream));
}
API __attribute__((weak, alias("pncclRecv"))) nc_type_ncclRecv ncclRecv;

API nc_type_ncclRedOpCreatePreMulSum pncclRedOpCreatePreMulSum;
API ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_RedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
  nc_type_ncclRedOpCreatePreMulSum *function = (nc_type_ncclRedOpCreatePreMulSum *)nc_real(NC_ncclRedOpCreatePreMulSum);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclRedOpCreatePreMulSum);
  return nc_came(comm, function(op, scalar, datatype, residence, real));
}
API __attribute__((weak, alias("pncclRedOpCreatePreMulSum"))) nc_type_ncclRedOpCreatePreMulSum ncclRedOpCreatePreMulSum;

API nc_type_ncclRedOpDestroy pncclRedOpDestroy;
API ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  ncclComm_t real = nc_only_real(comm);
  if (real == NULL)
    return nc_RedOpDestroy(op, comm);
  nc_type_ncclRedOpDestroy *function = (nc_type_ncclRedOpDestroy *)nc_real(NC_ncclRedOpDestroy);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclRedOpDestroy);
  return nc_came(comm, function(op, real));
}
API __attribute__((weak, alias("pncclRedOpDestroy"))) nc_type_ncclRedOpDestroy ncclRedOpDestroy;

API nc_type_ncclReduce pncclReduce;
API ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclReduce, &op);
  if (real == NULL)
    return nc_Reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream);
  nc_type_ncclReduce *function = (nc_type_ncclReduce *)nc_real(NC_ncclReduce);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclReduce);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_REDUCE, (int64_t)count, datatype, op, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, op, root, real, stream));
}
API __attribute__((weak, alias("pncclReduce"))) nc_type_ncclReduce ncclReduce;

API nc_type_ncclReduceConfig pncclReduceConfig;
API ncclResult_t pncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclReduceConfig, &op);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclReduceConfig);
    return checked == ncclSuccess ? nc_Reduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream) : checked;
  }
  nc_type_ncclReduceConfig *function = (nc_type_ncclReduceConfig *)nc_real(NC_ncclReduceConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclReduceConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_REDUCE, (int64_t)count, datatype, op, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, op, root, real, stream, config));
}
API __attribute__((weak, alias("pncclReduceConfig"))) nc_type_ncclReduceConfig ncclReduceConfig;

API nc_type_ncclReduceScatter pncclReduceScatter;
API ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclReduceScatter, &op);
  if (real == NULL)
    return nc_ReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
  nc_type_ncclReduceScatter *function = (nc_type_ncclReduceScatter *)nc_real(NC_ncclReduceScatter);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclReduceScatter);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_REDUCE_SCATTER, (int64_t)recvcount, datatype, op, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, recvcount, datatype, op, real, stream));
}
API __attribute__((weak, alias("pncclReduceScatter"))) nc_type_ncclReduceScatter ncclReduceScatter;

API nc_type_ncclReduceScatterConfig pncclReduceScatterConfig;
API ncclResult_t pncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_with_op(comm, NC_ncclReduceScatterConfig, &op);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclReduceScatterConfig);
    return checked == ncclSuccess ? nc_ReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream) : checked;
  }
  nc_type_ncclReduceScatterConfig *function = (nc_type_ncclReduceScatterConfig *)nc_real(NC_ncclReduceScatterConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclReduceScatterConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_REDUCE_SCATTER, (int64_t)recvcount, datatype, op, -1, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, recvcount, datatype, op, real, stream, config));
}
API __attribute__((weak, alias("pncclReduceScatterConfig"))) nc_type_ncclReduceScatterConfig ncclReduceScatterConfig;

API nc_type_ncclResetDebugInit pncclResetDebugInit;
API void pncclResetDebugInit(void) {
  nc_ResetDebugInit();
}
API __attribute__((weak, alias("pncclResetDebugInit"))) nc_type_ncclResetDebugInit ncclResetDebugInit;

API nc_type_ncclResetDebugInitInternal pncclResetDebugInitInternal;
API void pncclResetDebugInitInternal(void) {
  nc_ResetDebugInitInternal();
}
API __attribute__((weak, alias("pncclResetDebugInitInternal"))) nc_type_ncclResetDebugInitInternal ncclResetDebugInitInternal;

API nc_type_ncclScatter pncclScatter;
API ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclScatter);
  if (real == NULL)
    return nc_Scatter(sendbuff, recvbuff, count, datatype, root, comm, stream);
  nc_type_ncclScatter *function = (nc_type_ncclScatter *)nc_real(NC_ncclScatter);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclScatter);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_SCATTER, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream));
}
API __attribute__((weak, alias("pncclScatter"))) nc_type_ncclScatter ncclScatter;

API nc_type_ncclScatterConfig pncclScatterConfig;
API ncclResult_t pncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
  ncclComm_t real = nc_real_of(comm, NC_ncclScatterConfig);
  if (real == NULL) {
    ncclResult_t checked = nc_with_config(comm, config, NC_ncclScatterConfig);
    return checked == ncclSuccess ? nc_Scatter(sendbuff, recvbuff, count, datatype, root, comm, stream) : checked;
  }
  nc_type_ncclScatterConfig *function = (nc_type_ncclScatterConfig *)nc_real(NC_ncclScatterConfig);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclScatterConfig);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_SCATTER, (int64_t)count, datatype, -1, root, stream);
  return nc_watched(comm, mark, function(sendbuff, recvbuff, count, datatype, root, real, stream, config));
}
API __attribute__((weak, alias("pncclScatterConfig"))) nc_type_ncclScatterConfig ncclScatterConfig;

API nc_type_ncclSend pncclSend;
API ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_of(comm, NC_ncclSend);
  if (real == NULL)
    return nc_Send(sendbuff, count, datatype, peer, comm, stream);
  nc_type_ncclSend *function = (nc_type_ncclSend *)nc_real(NC_ncclSend);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclSend);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_SEND, (int64_t)count, datatype, -1, peer, stream);
  return nc_watched(comm, mark, function(sendbuff, count, datatype, peer, real, stream));
}
API __attribute__((weak, alias("pncclSend"))) nc_type_ncclSend ncclSend;

API nc_type_ncclSetEncryption pncclSetEncryption;
API ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config) {
  nc_type_ncclSetEncryption *function = (nc_type_ncclSetEncryption *)nc_real(NC_ncclSetEncryption);
  if (function == NULL)
    return nc_lacks(NULL, NC_ncclSetEncryption);
  return nc_came(NULL, function(config));
}
API __attribute__((weak, alias("pncclSetEncryption"))) nc_type_ncclSetEncryption ncclSetEncryption;

API nc_type_ncclSignal pncclSignal;
API ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclSignal);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclSignal);
  nc_type_ncclSignal *function = (nc_type_ncclSignal *)nc_real(NC_ncclSignal);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclSignal);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_SIGNAL, (int64_t)0, -1, -1, peer, stream);
  return nc_watched(comm, mark, function(peer, sigIdx, ctx, flags, real, stream));
}
API __attribute__((weak, alias("pncclSignal"))) nc_type_ncclSignal ncclSignal;

API nc_type_ncclTeamCft pncclTeamCft;
API ncclTeam_t pncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamCft);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamCft), (ncclTeam_t){0, 0, 0});
  nc_type_ncclTeamCft *function = (nc_type_ncclTeamCft *)nc_real(NC_ncclTeamCft);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamCft), (ncclTeam_t){0, 0, 0});
  return function(real, mode);
}
API __attribute__((weak, alias("pncclTeamCft"))) nc_type_ncclTeamCft ncclTeamCft;

API nc_type_ncclTeamCftMultimem pncclTeamCftMultimem;
API ncclTeam_t pncclTeamCftMultimem(ncclComm_t comm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamCftMultimem);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamCftMultimem), (ncclTeam_t){0, 0, 0});
  nc_type_ncclTeamCftMultimem *function = (nc_type_ncclTeamCftMultimem *)nc_real(NC_ncclTeamCftMultimem);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamCftMultimem), (ncclTeam_t){0, 0, 0});
  return function(real);
}
API __attribute__((weak, alias("pncclTeamCftMultimem"))) nc_type_ncclTeamCftMultimem ncclTeamCftMultimem;

API nc_type_ncclTeamLsa pncclTeamLsa;
API ncclTeam_t pncclTeamLsa(ncclComm_t comm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamLsa);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamLsa), (ncclTeam_t){0, 0, 0});
  nc_type_ncclTeamLsa *function = (nc_type_ncclTeamLsa *)nc_real(NC_ncclTeamLsa);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamLsa), (ncclTeam_t){0, 0, 0});
  return function(real);
}
API __attribute__((weak, alias("pncclTeamLsa"))) nc_type_ncclTeamLsa ncclTeamLsa;

API nc_type_ncclTeamRail pncclTeamRail;
API ncclTeam_t pncclTeamRail(ncclComm_t comm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamRail);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamRail), (ncclTeam_t){0, 0, 0});
  nc_type_ncclTeamRail *function = (nc_type_ncclTeamRail *)nc_real(NC_ncclTeamRail);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamRail), (ncclTeam_t){0, 0, 0});
  return function(real);
}
API __attribute__((weak, alias("pncclTeamRail"))) nc_type_ncclTeamRail ncclTeamRail;

API nc_type_ncclTeamRankToLsa pncclTeamRankToLsa;
API int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamRankToLsa);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamRankToLsa), -1);
  nc_type_ncclTeamRankToLsa *function = (nc_type_ncclTeamRankToLsa *)nc_real(NC_ncclTeamRankToLsa);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamRankToLsa), -1);
  return function(real, team, rank);
}
API __attribute__((weak, alias("pncclTeamRankToLsa"))) nc_type_ncclTeamRankToLsa ncclTeamRankToLsa;

API nc_type_ncclTeamRankToWorld pncclTeamRankToWorld;
API int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamRankToWorld);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamRankToWorld), -1);
  nc_type_ncclTeamRankToWorld *function = (nc_type_ncclTeamRankToWorld *)nc_real(NC_ncclTeamRankToWorld);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamRankToWorld), -1);
  return function(real, team, rank);
}
API __attribute__((weak, alias("pncclTeamRankToWorld"))) nc_type_ncclTeamRankToWorld ncclTeamRankToWorld;

API nc_type_ncclTeamWorld pncclTeamWorld;
API ncclTeam_t pncclTeamWorld(ncclComm_t comm) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclTeamWorld);
  if (real == NULL)
    return ((void)nc_unserved(comm, NC_ncclTeamWorld), (ncclTeam_t){0, 0, 0});
  nc_type_ncclTeamWorld *function = (nc_type_ncclTeamWorld *)nc_real(NC_ncclTeamWorld);
  if (function == NULL)
    return ((void)nc_lacks(comm, NC_ncclTeamWorld), (ncclTeam_t){0, 0, 0});
  return function(real);
}
API __attribute__((weak, alias("pncclTeamWorld"))) nc_type_ncclTeamWorld ncclTeamWorld;

API nc_type_ncclWaitSignal pncclWaitSignal;
API ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream) {
  ncclComm_t real = nc_real_or_make(comm, NC_ncclWaitSignal);
  if (real == NULL)
    return nc_unserved(comm, NC_ncclWaitSignal);
  nc_type_ncclWaitSignal *function = (nc_type_ncclWaitSignal *)nc_real(NC_ncclWaitSignal);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclWaitSignal);
  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_WAIT, (int64_t)0, -1, -1, -1, stream);
  return nc_watched(comm, mark, function(nDesc, signalDescs, real, stream));
}
API __attribute__((weak, alias("pncclWaitSignal"))) nc_type_ncclWaitSignal ncclWaitSignal;

API nc_type_ncclWinGetUserPtr pncclWinGetUserPtr;
API ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr) {
  ncclComm_t real = nc_real_of(comm, NC_ncclWinGetUserPtr);
  if (real == NULL)
    return nc_WinGetUserPtr(comm, win, outUserPtr);
  nc_type_ncclWinGetUserPtr *function = (nc_type_ncclWinGetUserPtr *)nc_real(NC_ncclWinGetUserPtr);
  if (function == NULL)
    return nc_lacks(comm, NC_ncclWinGetUserPtr);
  return nc_came(comm, function(real, win, outUserPtr));
}
API __attribute__((weak, alias("pncclWinGetUserPtr"))) nc_type_ncclWinGetUserPtr ncclWinGetUserPtr;
