/* nvml.c: a libnvidia-ml.so.1 of a machine that $SHUNT_TEST_NVML describes, read anew by every nvmlInit_v2:
 *
 *   driver VERSION
 *   gpu UUID NAME DOMAIN BUS DEVICE MEMORY MAJOR MINOR MIG RESULT   (RESULT: of nvmlDeviceGetHandleByIndex)
 *   mig GPU UUID                                                     (a MIG device of a GPU)
 *   link GPU NUMBER STATE VERSION END DOMAIN BUS DEVICE RESULT       (negative VERSION, END or BUS: not supported)
 *   path A B NVLINK READ WRITE LEVEL                                 (negative: not supported)
 *
 * Functions that OLD leaves out are those that old drivers lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, UNSUPPORTED = 3, MISSING = 6, SMALL = 7, MAX_GPUS = 16, MAX_LINKS = 40, MAX_MIG = 8 };

typedef struct {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char address[32];
} pci_info;

typedef struct {
  int there, state, version, end, result;
  unsigned domain, device;
  long bus;
} link_info;

typedef struct gpu_info {
  char uuid[96], name[96];
  unsigned domain, bus, device;
  unsigned long long memory;
  int major, minor, mig, result, is_mig, links, parts;
  link_info link[MAX_LINKS];
  struct gpu_info *part[MAX_MIG];
  int path[MAX_GPUS][4];
} gpu_info;

static gpu_info gpus[MAX_GPUS], parts[MAX_GPUS * MAX_MIG];
static int count, part_count, opened;
static char driver[80];

static int text(char *to, unsigned length, const char *from) {
  if (strlen(from) >= length) return SMALL;
  strcpy(to, from);
  return SUCCESS;
}

int nvmlInit_v2(void) {
  FILE *f = fopen(getenv("SHUNT_TEST_NVML"), "r");
  char line[512];
  if (!f) return 9; /* driver not loaded */
  memset(gpus, 0, sizeof gpus);
  memset(parts, 0, sizeof parts);
  count = part_count = 0;
  while (fgets(line, sizeof line, f)) {
    gpu_info *g = &gpus[count];
    link_info l = {.there = 1};
    char uuid[96];
    int gpu, peer, number, p[4];
    if (sscanf(line, "driver %79s", driver) == 1) continue;
    if (sscanf(line, "gpu %95s %95s %x %x %x %llu %d %d %d %d", g->uuid, g->name, &g->domain, &g->bus, &g->device,
               &g->memory, &g->major, &g->minor, &g->mig, &g->result) == 10)
      count++;
    if (sscanf(line, "mig %d %95s", &gpu, uuid) == 2) {
      gpu_info *part = &parts[part_count++];
      strcpy(part->uuid, uuid);
      part->is_mig = 1;
      gpus[gpu].part[gpus[gpu].parts++] = part;
    }
    if (sscanf(line, "link %d %d %d %d %d %x %ld %u %d", &gpu, &number, &l.state, &l.version, &l.end, &l.domain, &l.bus,
               &l.device, &l.result) == 9) {
      gpus[gpu].link[number] = l;
      if (gpus[gpu].links <= number) gpus[gpu].links = number + 1;
    }
    if (sscanf(line, "path %d %d %d %d %d %d", &gpu, &peer, p, p + 1, p + 2, p + 3) == 6)
      memcpy(gpus[gpu].path[peer], p, sizeof p);
  }
  fclose(f);
  opened++;
  return SUCCESS;
}

int nvmlShutdown(void) {
  if (!opened) return 1; /* uninitialized */
  if (!--opened) count = 0;
  return SUCCESS;
}

const char *nvmlErrorString(int result) {
  static char texts[64][24];
  if (result < 0 || result > 63) return "Unknown Error";
  snprintf(texts[result], sizeof *texts, "Error %d", result);
  return texts[result];
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) { return text(version, length, driver); }

int nvmlDeviceGetCount_v2(unsigned *n) {
  *n = count;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index >= (unsigned)count) return INVALID;
  *device = &gpus[index];
  return gpus[index].result;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  for (int i = 0; i < count; i++)
    if (!strcmp(gpus[i].uuid, uuid)) {
      *device = &gpus[i];
      return gpus[i].result;
    }
  for (int i = 0; i < part_count; i++)
    if (!strcmp(parts[i].uuid, uuid)) {
      *device = &parts[i];
      return SUCCESS;
    }
  return MISSING;
}

int nvmlDeviceGetIndex(void *device, unsigned *index) {
  *index = (gpu_info *)device - gpus;
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  return text(uuid, length, ((gpu_info *)device)->uuid);
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  return text(name, length, ((gpu_info *)device)->name);
}

static int address(pci_info *pci, unsigned domain, unsigned bus, unsigned device) {
  memset(pci, 0, sizeof *pci);
  pci->domain = domain;
  pci->bus = bus;
  pci->device = device;
  return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, pci_info *pci) {
  gpu_info *g = device;
  return g->is_mig ? INVALID : address(pci, g->domain, g->bus, g->device);
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  gpu_info *g = device;
  *major = g->major;
  *minor = g->minor;
  return g->major ? SUCCESS : 15; /* lost */
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
  gpu_info *g = device;
  memory[0] = g->memory;
  return g->memory ? SUCCESS : UNSUPPORTED;
}

static link_info *find(void *device, unsigned number, int *result) {
  gpu_info *g = device;
  *result = g->links == 0                  ? UNSUPPORTED
            : number >= (unsigned)g->links ? INVALID
            : g->link[number].there        ? SUCCESS
                                           : UNSUPPORTED;
  return *result ? NULL : &g->link[number];
}

int nvmlDeviceGetNvLinkState(void *device, unsigned number, int *state) {
  int result;
  link_info *l = find(device, number, &result);
  if (!l) return result;
  *state = l->state;
  return l->result;
}

int nvmlDeviceGetP2PStatus(void *device, void *peer, int what, int *status) {
  gpu_info *g = device, *p = peer;
  if (g->is_mig || p->is_mig) return INVALID;
  if (g->path[p - gpus][what == 2 ? 0 : what + 1] < 0) return UNSUPPORTED;
  *status = g->path[p - gpus][what == 2 ? 0 : what + 1];
  return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(void *device, void *peer, int *level) {
  gpu_info *g = device, *p = peer;
  if (g->path[p - gpus][3] < 0) return UNSUPPORTED;
  *level = g->path[p - gpus][3];
  return SUCCESS;
}

#ifndef OLD
int nvmlDeviceGetNvLinkVersion(void *device, unsigned number, unsigned *version) {
  int result;
  link_info *l = find(device, number, &result);
  if (!l || l->version < 0) return UNSUPPORTED;
  *version = l->version;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned number, int *end) {
  int result;
  link_info *l = find(device, number, &result);
  if (!l || l->end < 0) return UNSUPPORTED;
  *end = l->end;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned number, pci_info *pci) {
  int result;
  link_info *l = find(device, number, &result);
  return !l || l->bus < 0 ? UNSUPPORTED : address(pci, l->domain, l->bus, l->device);
}

int nvmlDeviceGetMigMode(void *device, unsigned *mode, unsigned *pending) {
  gpu_info *g = device;
  *mode = *pending = g->mig;
  return g->mig < 0 ? UNSUPPORTED : SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *n) {
  *n = MAX_MIG;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
  gpu_info *g = device;
  if (index >= MAX_MIG) return INVALID;
  if (!g->part[index]) return MISSING;
  *part = g->part[index];
  return SUCCESS;
}
#endif
