/* nvml.c: the calls of NVML; see toolkit.h. Signatures and numbers are those of nvml.h. */
#include <stdio.h>
#include <string.h>

#include "toolkit.h"

enum { ENABLED = 1, P2P_READ = 0, P2P_WRITE = 1, P2P_NVLINK = 2, UNKNOWN_END = 255 };

/* nvmlPciInfo_t */
typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
} pci_info;

typedef struct {
  unsigned long long total, free, used;
} memory_info;

static struct {
  int (*Init)(void);
  int (*Shutdown)(void);
  const char *(*ErrorString)(int);
  int (*GetCount)(unsigned *);
  int (*GetHandleByIndex)(unsigned, void **);
  int (*GetHandleByUUID)(const char *, void **);
  int (*GetIndex)(void *, unsigned *);
  int (*GetUUID)(void *, char *, unsigned);
  int (*GetName)(void *, char *, unsigned);
  int (*GetPciInfo)(void *, pci_info *);
  int (*GetCapability)(void *, int *, int *);
  int (*GetMemoryInfo)(void *, memory_info *);
  int (*GetNvLinkState)(void *, unsigned, int *);
  int (*GetP2PStatus)(void *, void *, int, int *);
  int (*GetCommonAncestor)(void *, void *, int *);
  /* Not in every version. */
  int (*GetDriverVersion)(char *, unsigned);
  int (*GetNvLinkVersion)(void *, unsigned, unsigned *);
  int (*GetNvLinkRemotePciInfo)(void *, unsigned, pci_info *);
  int (*GetNvLinkRemoteDeviceType)(void *, unsigned, int *);
  int (*GetMigMode)(void *, unsigned *, unsigned *);
  int (*GetMaxMigDeviceCount)(void *, unsigned *);
  int (*GetMigDeviceHandleByIndex)(void *, unsigned, void **);
} ml;

int sm_load(const char *path, char *message, size_t bytes) {
  enum { required = 15 };
  static const char *const names[] = {"nvmlInit_v2",
                                      "nvmlShutdown",
                                      "nvmlErrorString",
                                      "nvmlDeviceGetCount_v2",
                                      "nvmlDeviceGetHandleByIndex_v2",
                                      "nvmlDeviceGetHandleByUUID",
                                      "nvmlDeviceGetIndex",
                                      "nvmlDeviceGetUUID",
                                      "nvmlDeviceGetName",
                                      "nvmlDeviceGetPciInfo_v3",
                                      "nvmlDeviceGetCudaComputeCapability",
                                      "nvmlDeviceGetMemoryInfo",
                                      "nvmlDeviceGetNvLinkState",
                                      "nvmlDeviceGetP2PStatus",
                                      "nvmlDeviceGetTopologyCommonAncestor",
                                      "nvmlSystemGetDriverVersion",
                                      "nvmlDeviceGetNvLinkVersion",
                                      "nvmlDeviceGetNvLinkRemotePciInfo_v2",
                                      "nvmlDeviceGetNvLinkRemoteDeviceType",
                                      "nvmlDeviceGetMigMode",
                                      "nvmlDeviceGetMaxMigDeviceCount",
                                      "nvmlDeviceGetMigDeviceHandleByIndex"};
  enum { count = sizeof names / sizeof *names };
  _Static_assert(count * sizeof(void *) == sizeof ml, "as many names as slots");
  return sk_load(path, names, (void **)&ml, required, count, message, bytes);
}

int sm_open(void) { return ml.Init(); }

int sm_close(void) { return ml.Shutdown(); }

const char *sm_error(int result) { return ml.ErrorString(result); }

int sm_driver(char *version, size_t bytes) {
  return ml.GetDriverVersion ? ml.GetDriverVersion(version, (unsigned)bytes) : SM_MISSING;
}

int sm_count(unsigned *count) { return ml.GetCount(count); }

int sm_device(const char *uuid, void **device) { return ml.GetHandleByUUID(uuid, device); }

static void describe_links(void *device, sm_gpu *gpu) {
  for (unsigned number = 0; number < SM_LINKS; number++) {
    int up = 0, result = ml.GetNvLinkState(device, number, &up);
    if (result == SM_INVALID_ARGUMENT || (result == SM_NOT_SUPPORTED && number == 0))
      break; /* no such link, or no NVLink at all */
    if (result || up != ENABLED) continue; /* also a link that its board does not have */
    sm_link *link = &gpu->link[gpu->links++];
    *link = (sm_link){.number = number, .remote = UNKNOWN_END};
    pci_info pci = {0};
    int end;
    if (!ml.GetNvLinkVersion || ml.GetNvLinkVersion(device, number, &link->version)) link->version = 0;
    if (ml.GetNvLinkRemoteDeviceType && !ml.GetNvLinkRemoteDeviceType(device, number, &end)) link->remote = end;
    if (!ml.GetNvLinkRemotePciInfo || ml.GetNvLinkRemotePciInfo(device, number, &pci)) continue;
    link->known = 1;
    link->domain = pci.domain;
    link->bus = pci.bus;
    link->device = pci.device;
  }
}

static void describe_mig(void *device, sm_gpu *gpu) {
  unsigned mode = 0, pending, count = 0;
  if (!ml.GetMigMode || ml.GetMigMode(device, &mode, &pending) || mode != ENABLED) return;
  gpu->mig = 1;
  if (!ml.GetMaxMigDeviceCount || !ml.GetMigDeviceHandleByIndex || ml.GetMaxMigDeviceCount(device, &count)) return;
  for (unsigned i = 0; i < count && gpu->mig_devices < SM_MIG_DEVICES; i++) {
    void *part;
    if (!ml.GetMigDeviceHandleByIndex(device, i, &part) &&
        !ml.GetUUID(part, gpu->mig_device[gpu->mig_devices], SM_TEXT))
      gpu->mig_devices++;
  }
}

int sm_at(unsigned index, void **device) { return ml.GetHandleByIndex(index, device); }

void sm_describe(void *device, sm_gpu *gpu) {
  pci_info pci = {0};
  memory_info memory = {0};
  memset(gpu, 0, sizeof *gpu);
  gpu->call = "nvmlDeviceGetIndex";
  if ((gpu->failed = ml.GetIndex(device, &gpu->index))) return;
  gpu->call = "nvmlDeviceGetUUID";
  if ((gpu->failed = ml.GetUUID(device, gpu->uuid, SM_TEXT))) return;
  gpu->call = "nvmlDeviceGetName";
  if ((gpu->failed = ml.GetName(device, gpu->name, SM_TEXT))) return;
  gpu->call = "nvmlDeviceGetPciInfo";
  if ((gpu->failed = ml.GetPciInfo(device, &pci))) return;
  gpu->domain = pci.domain;
  gpu->bus = pci.bus;
  gpu->device = pci.device;
  gpu->call = "nvmlDeviceGetCudaComputeCapability";
  if ((gpu->failed = ml.GetCapability(device, &gpu->major, &gpu->minor))) return;
  if (!ml.GetMemoryInfo(device, &memory)) gpu->memory = memory.total; /* not supported where memory is the CPU's */
  describe_links(device, gpu);
  describe_mig(device, gpu);
}

static int peer_status(void *device, void *peer, int what) {
  int status;
  return ml.GetP2PStatus(device, peer, what, &status) ? SM_STATUS_UNKNOWN : status;
}

void sm_path(void *device, void *peer, int *nvlink, int *read, int *write, int *level) {
  *nvlink = peer_status(device, peer, P2P_NVLINK);
  *read = peer_status(device, peer, P2P_READ);
  *write = peer_status(device, peer, P2P_WRITE);
  if (ml.GetCommonAncestor(device, peer, level)) *level = SM_LEVEL_UNKNOWN;
}
