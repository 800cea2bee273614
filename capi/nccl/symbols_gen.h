/* Code generated from capi/nccl/symbols.json by gennccl. DO NOT EDIT. */
#ifndef NC_SYMBOLS_GEN_H
#define NC_SYMBOLS_GEN_H

#include "types.h"

/* The functions of NCCL, as places in the table of the real library's. */
enum nc_symbol {
  NC_ncclAllGather,
  NC_ncclAllGatherConfig,
  NC_ncclAllReduce,
  NC_ncclAllReduceConfig,
  NC_ncclAlltoAll,
  NC_ncclAlltoAllConfig,
  NC_ncclBcast,
  NC_ncclBroadcast,
  NC_ncclBroadcastConfig,
  NC_ncclCommAbort,
  NC_ncclCommCount,
  NC_ncclCommCuDevice,
  NC_ncclCommDeregister,
  NC_ncclCommDestroy,
  NC_ncclCommFinalize,
  NC_ncclCommGetAsyncError,
  NC_ncclCommGetUniqueId,
  NC_ncclCommGrow,
  NC_ncclCommInitAll,
  NC_ncclCommInitRank,
  NC_ncclCommInitRankConfig,
  NC_ncclCommInitRankScalable,
  NC_ncclCommMemStats,
  NC_ncclCommQueryProperties,
  NC_ncclCommRegister,
  NC_ncclCommResume,
  NC_ncclCommRevoke,
  NC_ncclCommShrink,
  NC_ncclCommSplit,
  NC_ncclCommSuspend,
  NC_ncclCommUserRank,
  NC_ncclCommWindowDeregister,
  NC_ncclCommWindowRegister,
  NC_ncclDevCommCreate,
  NC_ncclDevCommDestroy,
  NC_ncclGather,
  NC_ncclGatherConfig,
  NC_ncclGetCftDeviceLeInfo,
  NC_ncclGetErrorString,
  NC_ncclGetLastError,
  NC_ncclGetLsaDevicePointer,
  NC_ncclGetLsaMultimemDevicePointer,
  NC_ncclGetMultimemDeviceLeInfo,
  NC_ncclGetMultimemDevicePointer,
  NC_ncclGetPeerDeviceLeInfo,
  NC_ncclGetPeerDevicePointer,
  NC_ncclGetUniqueId,
  NC_ncclGetVersion,
  NC_ncclGinBarrierCreateRequirement,
  NC_ncclGinInboxA2ACreateRequirement,
  NC_ncclGinOutboxCreateRequirement,
  NC_ncclGroupEnd,
  NC_ncclGroupSimulateEnd,
  NC_ncclGroupStart,
  NC_ncclLLA2ACalcSlots,
  NC_ncclLLA2ACreateRequirement,
  NC_ncclLsaBarrierCreateRequirement,
  NC_ncclMemAlloc,
  NC_ncclMemFree,
  NC_ncclParamBind,
  NC_ncclParamDumpAll,
  NC_ncclParamGet,
  NC_ncclParamGetAllParameterKeys,
  NC_ncclParamGetI16,
  NC_ncclParamGetI32,
  NC_ncclParamGetI64,
  NC_ncclParamGetI8,
  NC_ncclParamGetParameter,
  NC_ncclParamGetStr,
  NC_ncclParamGetU16,
  NC_ncclParamGetU32,
  NC_ncclParamGetU64,
  NC_ncclParamGetU8,
  NC_ncclPutSignal,
  NC_ncclRecv,
  NC_ncclRedOpCreatePreMulSum,
  NC_ncclRedOpDestroy,
  NC_ncclReduce,
  NC_ncclReduceConfig,
  NC_ncclReduceScatter,
  NC_ncclReduceScatterConfig,
  NC_ncclResetDebugInit,
  NC_ncclResetDebugInitInternal,
  NC_ncclScatter,
  NC_ncclScatterConfig,
  NC_ncclSend,
  NC_ncclSetEncryption,
  NC_ncclSignal,
  NC_ncclTeamCft,
  NC_ncclTeamCftMultimem,
  NC_ncclTeamLsa,
  NC_ncclTeamRail,
  NC_ncclTeamRankToLsa,
  NC_ncclTeamRankToWorld,
  NC_ncclTeamWorld,
  NC_ncclWaitSignal,
  NC_ncclWinGetUserPtr,
  NC_SYMBOLS
};

#define NC_NAMES \
  "ncclAllGather", \
  "ncclAllGatherConfig", \
  "ncclAllReduce", \
  "ncclAllReduceConfig", \
  "ncclAlltoAll", \
  "ncclAlltoAllConfig", \
  "ncclBcast", \
  "ncclBroadcast", \
  "ncclBroadcastConfig", \
  "ncclCommAbort", \
  "ncclCommCount", \
  "ncclCommCuDevice", \
  "ncclCommDeregister", \
  "ncclCommDestroy", \
  "ncclCommFinalize", \
  "ncclCommGetAsyncError", \
  "ncclCommGetUniqueId", \
  "ncclCommGrow", \
  "ncclCommInitAll", \
  "ncclCommInitRank", \
  "ncclCommInitRankConfig", \
  "ncclCommInitRankScalable", \
  "ncclCommMemStats", \
  "ncclCommQueryProperties", \
  "ncclCommRegister", \
  "ncclCommResume", \
  "ncclCommRevoke", \
  "ncclCommShrink", \
  "ncclCommSplit", \
  "ncclCommSuspend", \
  "ncclCommUserRank", \
  "ncclCommWindowDeregister", \
  "ncclCommWindowRegister", \
  "ncclDevCommCreate", \
  "ncclDevCommDestroy", \
  "ncclGather", \
  "ncclGatherConfig", \
  "ncclGetCftDeviceLeInfo", \
  "ncclGetErrorString", \
  "ncclGetLastError", \
  "ncclGetLsaDevicePointer", \
  "ncclGetLsaMultimemDevicePointer", \
  "ncclGetMultimemDeviceLeInfo", \
  "ncclGetMultimemDevicePointer", \
  "ncclGetPeerDeviceLeInfo", \
  "ncclGetPeerDevicePointer", \
  "ncclGetUniqueId", \
  "ncclGetVersion", \
  "ncclGinBarrierCreateRequirement", \
  "ncclGinInboxA2ACreateRequirement", \
  "ncclGinOutboxCreateRequirement", \
  "ncclGroupEnd", \
  "ncclGroupSimulateEnd", \
  "ncclGroupStart", \
  "ncclLLA2ACalcSlots", \
  "ncclLLA2ACreateRequirement", \
  "ncclLsaBarrierCreateRequirement", \
  "ncclMemAlloc", \
  "ncclMemFree", \
  "ncclParamBind", \
  "ncclParamDumpAll", \
  "ncclParamGet", \
  "ncclParamGetAllParameterKeys", \
  "ncclParamGetI16", \
  "ncclParamGetI32", \
  "ncclParamGetI64", \
  "ncclParamGetI8", \
  "ncclParamGetParameter", \
  "ncclParamGetStr", \
  "ncclParamGetU16", \
  "ncclParamGetU32", \
  "ncclParamGetU64", \
  "ncclParamGetU8", \
  "ncclPutSignal", \
  "ncclRecv", \
  "ncclRedOpCreatePreMulSum", \
  "ncclRedOpDestroy", \
  "ncclReduce", \
  "ncclReduceConfig", \
  "ncclReduceScatter", \
  "ncclReduceScatterConfig", \
  "ncclResetDebugInit", \
  "ncclResetDebugInitInternal", \
  "ncclScatter", \
  "ncclScatterConfig", \
  "ncclSend", \
  "ncclSetEncryption", \
  "ncclSignal", \
  "ncclTeamCft", \
  "ncclTeamCftMultimem", \
  "ncclTeamLsa", \
  "ncclTeamRail", \
  "ncclTeamRankToLsa", \
  "ncclTeamRankToWorld", \
  "ncclTeamWorld", \
  "ncclWaitSignal", \
  "ncclWinGetUserPtr", \

/* What SHUNT_NCCL_FORWARD may give to the real library: what Shunt does not have, windows, collectives. */
enum nc_kind { NC_OTHER, NC_LACKING, NC_WINDOWS, NC_COLLECTIVE };
#define NC_FACTS \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_GATHER}, \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_GATHER}, \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_REDUCE}, \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_REDUCE}, \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_TO_ALL}, \
  {NC_COLLECTIVE, SHUNT_COLL_ALL_TO_ALL}, \
  {NC_COLLECTIVE, SHUNT_COLL_BROADCAST}, \
  {NC_COLLECTIVE, SHUNT_COLL_BROADCAST}, \
  {NC_COLLECTIVE, SHUNT_COLL_BROADCAST}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, -1}, \
  {NC_OTHER, -1}, \
  {NC_WINDOWS, -1}, \
  {NC_WINDOWS, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_COLLECTIVE, SHUNT_COLL_GATHER}, \
  {NC_COLLECTIVE, SHUNT_COLL_GATHER}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, SHUNT_COLL_PUT}, \
  {NC_COLLECTIVE, SHUNT_COLL_RECV}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_COLLECTIVE, SHUNT_COLL_REDUCE}, \
  {NC_COLLECTIVE, SHUNT_COLL_REDUCE}, \
  {NC_COLLECTIVE, SHUNT_COLL_REDUCE_SCATTER}, \
  {NC_COLLECTIVE, SHUNT_COLL_REDUCE_SCATTER}, \
  {NC_OTHER, -1}, \
  {NC_OTHER, -1}, \
  {NC_COLLECTIVE, SHUNT_COLL_SCATTER}, \
  {NC_COLLECTIVE, SHUNT_COLL_SCATTER}, \
  {NC_COLLECTIVE, SHUNT_COLL_SEND}, \
  {NC_OTHER, -1}, \
  {NC_LACKING, SHUNT_COLL_SIGNAL}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, -1}, \
  {NC_LACKING, SHUNT_COLL_WAIT}, \
  {NC_WINDOWS, -1}, \

/* The type of each. */
typedef ncclResult_t nc_type_ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclCommAbort(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclCommCount(ncclComm_t comm, int *count);
typedef ncclResult_t nc_type_ncclCommCuDevice(ncclComm_t comm, int *device);
typedef ncclResult_t nc_type_ncclCommDeregister(ncclComm_t comm, void *handle);
typedef ncclResult_t nc_type_ncclCommDestroy(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclCommFinalize(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError);
typedef ncclResult_t nc_type_ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId);
typedef ncclResult_t nc_type_ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank, ncclComm_t *newcomm, ncclConfig_t *config);
typedef ncclResult_t nc_type_ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist);
typedef ncclResult_t nc_type_ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank);
typedef ncclResult_t nc_type_ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config);
typedef ncclResult_t nc_type_ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config);
typedef ncclResult_t nc_type_ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value);
typedef ncclResult_t nc_type_ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props);
typedef ncclResult_t nc_type_ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle);
typedef ncclResult_t nc_type_ncclCommResume(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclCommRevoke(ncclComm_t comm, int revokeFlags);
typedef ncclResult_t nc_type_ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags);
typedef ncclResult_t nc_type_ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config);
typedef ncclResult_t nc_type_ncclCommSuspend(ncclComm_t comm, int flags);
typedef ncclResult_t nc_type_ncclCommUserRank(ncclComm_t comm, int *rank);
typedef ncclResult_t nc_type_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
typedef ncclResult_t nc_type_ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags);
typedef ncclResult_t nc_type_ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs, ncclDevComm_t *outDevComm);
typedef ncclResult_t nc_type_ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm);
typedef ncclResult_t nc_type_ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclGetCftDeviceLeInfo(ncclWindow_t window, size_t offset, int peerCft, ncclTeam_t cftTeam, ncclCftLeId_t *leId, size_t *leOffset);
typedef const char *nc_type_ncclGetErrorString(ncclResult_t result);
typedef const char *nc_type_ncclGetLastError(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void **outPtr);
typedef ncclResult_t nc_type_ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr);
typedef ncclResult_t nc_type_ncclGetMultimemDeviceLeInfo(ncclWindow_t window, size_t offset, ncclCftLeId_t *leId, size_t *leOffset);
typedef ncclResult_t nc_type_ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void **outPtr);
typedef ncclResult_t nc_type_ncclGetPeerDeviceLeInfo(ncclWindow_t window, size_t offset, int peerWorld, ncclCftLeId_t *leId, size_t *leOffset);
typedef ncclResult_t nc_type_ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr);
typedef ncclResult_t nc_type_ncclGetUniqueId(ncclUniqueId *uniqueId);
typedef ncclResult_t nc_type_ncclGetVersion(int *version);
typedef ncclResult_t nc_type_ncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam_t team, int nBarriers, ncclGinBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
typedef ncclResult_t nc_type_ncclGinInboxA2ACreateRequirement(ncclTeam_t peers, int nBlocks, int size_log2, ncclGinInboxA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
typedef ncclResult_t nc_type_ncclGinOutboxCreateRequirement(int nBlocks, int size_log2, ncclGinOutboxHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
typedef ncclResult_t nc_type_ncclGroupEnd(void);
typedef ncclResult_t nc_type_ncclGroupSimulateEnd(ncclSimInfo_t *simInfo);
typedef ncclResult_t nc_type_ncclGroupStart(void);
typedef int nc_type_ncclLLA2ACalcSlots(int maxElts, int maxEltSize);
typedef ncclResult_t nc_type_ncclLLA2ACreateRequirement(int nBlocks, int nSlots, ncclLLA2AHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
typedef ncclResult_t nc_type_ncclLsaBarrierCreateRequirement(ncclTeam_t team, int nBarriers, ncclLsaBarrierHandle_t *outHandle, ncclDevResourceRequirements_t *outReq);
typedef ncclResult_t nc_type_ncclMemAlloc(void **ptr, size_t size);
typedef ncclResult_t nc_type_ncclMemFree(void *ptr);
typedef ncclResult_t nc_type_ncclParamBind(ncclParamHandle_t *out, const char *key);
typedef void nc_type_ncclParamDumpAll(void);
typedef ncclResult_t nc_type_ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len);
typedef ncclResult_t nc_type_ncclParamGetAllParameterKeys(const char ***table, int *tableLen);
typedef ncclResult_t nc_type_ncclParamGetI16(ncclParamHandle_t h, int16_t *out);
typedef ncclResult_t nc_type_ncclParamGetI32(ncclParamHandle_t h, int32_t *out);
typedef ncclResult_t nc_type_ncclParamGetI64(ncclParamHandle_t h, int64_t *out);
typedef ncclResult_t nc_type_ncclParamGetI8(ncclParamHandle_t h, int8_t *out);
typedef ncclResult_t nc_type_ncclParamGetParameter(const char *key, const char **value, int *valueLen);
typedef ncclResult_t nc_type_ncclParamGetStr(ncclParamHandle_t h, const char **out);
typedef ncclResult_t nc_type_ncclParamGetU16(ncclParamHandle_t h, uint16_t *out);
typedef ncclResult_t nc_type_ncclParamGetU32(ncclParamHandle_t h, uint32_t *out);
typedef ncclResult_t nc_type_ncclParamGetU64(ncclParamHandle_t h, uint64_t *out);
typedef ncclResult_t nc_type_ncclParamGetU8(ncclParamHandle_t h, uint8_t *out);
typedef ncclResult_t nc_type_ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm);
typedef ncclResult_t nc_type_ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
typedef ncclResult_t nc_type_ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef void nc_type_ncclResetDebugInit(void);
typedef void nc_type_ncclResetDebugInitInternal(void);
typedef ncclResult_t nc_type_ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config);
typedef ncclResult_t nc_type_ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclSetEncryption(const ncclEncryptionConfig_t *config);
typedef ncclResult_t nc_type_ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
typedef ncclTeam_t nc_type_ncclTeamCft(ncclComm_t comm, ncclCftTeamMode_t mode);
typedef ncclTeam_t nc_type_ncclTeamCftMultimem(ncclComm_t comm);
typedef ncclTeam_t nc_type_ncclTeamLsa(ncclComm_t comm);
typedef ncclTeam_t nc_type_ncclTeamRail(ncclComm_t comm);
typedef int nc_type_ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank);
typedef int nc_type_ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
typedef ncclTeam_t nc_type_ncclTeamWorld(ncclComm_t comm);
typedef ncclResult_t nc_type_ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm, cudaStream_t stream);
typedef ncclResult_t nc_type_ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr);

/* What Shunt does itself. */
nc_type_ncclAllGather nc_AllGather;
nc_type_ncclAllReduce nc_AllReduce;
nc_type_ncclAlltoAll nc_AlltoAll;
nc_type_ncclBcast nc_Bcast;
nc_type_ncclBroadcast nc_Broadcast;
nc_type_ncclCommAbort nc_CommAbort;
nc_type_ncclCommCount nc_CommCount;
nc_type_ncclCommCuDevice nc_CommCuDevice;
nc_type_ncclCommDeregister nc_CommDeregister;
nc_type_ncclCommDestroy nc_CommDestroy;
nc_type_ncclCommFinalize nc_CommFinalize;
nc_type_ncclCommGetAsyncError nc_CommGetAsyncError;
nc_type_ncclCommGrow nc_CommGrow;
nc_type_ncclCommInitAll nc_CommInitAll;
nc_type_ncclCommInitRank nc_CommInitRank;
nc_type_ncclCommInitRankConfig nc_CommInitRankConfig;
nc_type_ncclCommInitRankScalable nc_CommInitRankScalable;
nc_type_ncclCommRegister nc_CommRegister;
nc_type_ncclCommRevoke nc_CommRevoke;
nc_type_ncclCommShrink nc_CommShrink;
nc_type_ncclCommSplit nc_CommSplit;
nc_type_ncclCommUserRank nc_CommUserRank;
nc_type_ncclCommWindowDeregister nc_CommWindowDeregister;
nc_type_ncclCommWindowRegister nc_CommWindowRegister;
nc_type_ncclGather nc_Gather;
nc_type_ncclGetErrorString nc_GetErrorString;
nc_type_ncclGetLastError nc_GetLastError;
nc_type_ncclGetUniqueId nc_GetUniqueId;
nc_type_ncclGetVersion nc_GetVersion;
nc_type_ncclGroupEnd nc_GroupEnd;
nc_type_ncclGroupSimulateEnd nc_GroupSimulateEnd;
nc_type_ncclGroupStart nc_GroupStart;
nc_type_ncclMemAlloc nc_MemAlloc;
nc_type_ncclMemFree nc_MemFree;
nc_type_ncclRecv nc_Recv;
nc_type_ncclRedOpCreatePreMulSum nc_RedOpCreatePreMulSum;
nc_type_ncclRedOpDestroy nc_RedOpDestroy;
nc_type_ncclReduce nc_Reduce;
nc_type_ncclReduceScatter nc_ReduceScatter;
nc_type_ncclResetDebugInit nc_ResetDebugInit;
nc_type_ncclResetDebugInitInternal nc_ResetDebugInitInternal;
nc_type_ncclScatter nc_Scatter;
nc_type_ncclSend nc_Send;
nc_type_ncclWinGetUserPtr nc_WinGetUserPtr;

#endif
