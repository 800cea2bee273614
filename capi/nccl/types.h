/*
 * types.h: the types of NCCL's interface, as far as its binary form goes. Programs
 * are compiled with NVIDIA's nccl.h; what they pass is what is declared here.
 */
#ifndef NC_TYPES_H
#define NC_TYPES_H

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
typedef void *cudaStream_t;

enum { NC_UNIQUE_ID_BYTES = 128 };
typedef struct {
  char internal[NC_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* Enumerations are ints in every ABI that NCCL is made for. */
typedef int ncclDataType_t, ncclRedOp_t, ncclScalarResidence_t, ncclCommMemStat_t, ncclCftTeamMode_t;
typedef int ncclResult_t;
enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
  ncclTimeout, /* since 2.30 or so; never returned by Shunt, as older programs do not know it */
};

enum { NC_DATA_TYPES = 12, NC_BUILTIN_OPS = 5 };
enum { NC_SCALAR_DEVICE = 0, NC_SCALAR_HOST = 1 };
enum { NC_SPLIT_NOCOLOR = -1, NC_SHRINK_ABORT = 1, NC_WIN_COLL_SYMMETRIC = 1 };
#define NC_MAGIC 0xcafebeefu
#define NC_SIM_INFO_MAGIC 0x74685283u
#define NC_UNDEF_INT INT32_MIN

/* The beginning of ncclConfig_t, which later versions append to. */
typedef struct {
  size_t size;
  unsigned int magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
} ncclConfig_t;

typedef struct {
  size_t size;
  unsigned int magic, version;
  float estimatedTime;
} ncclSimInfo_t;

/* What is passed by value of the device's interface. */
typedef struct {
  int nRanks, rank, stride;
} ncclTeam_t;
typedef struct {
  void *mcBasePtr;
} ncclMultimemHandle_t;

/* Only ever pointed to. */
typedef uint32_t ncclCftLeId_t;
typedef struct ncclCollConfig {
  size_t size;
  unsigned int magic, version;
} ncclCollConfig_t;
typedef struct ncclCommProperties ncclCommProperties_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclEncryptionConfig ncclEncryptionConfig_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle_t;
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;

#endif
