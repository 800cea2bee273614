/*
 * config.c: what the environment and the program's config structs ask for.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"

static struct nc_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void) {
  const char *forward = getenv("SHUNT_NCCL_FORWARD"), *memory = getenv("SHUNT_NCCL_MEMORY");
  const char *timeout = getenv("SHUNT_TIMEOUT");
  settings.memory = SHUNT_MEMORY_CUDA;
  if (memory != NULL && strcmp(memory, "host") == 0)
    settings.memory = SHUNT_MEMORY_HOST;
  else if (memory != NULL && memory[0] != 0 && strcmp(memory, "cuda") != 0)
    nc_log("warn", "SHUNT_NCCL_MEMORY=%s is not taken; want cuda or host", memory);
  /* NCCL waits for ever, and programs rely on it: half an hour, unless the user has said what. */
  settings.timeout_ms = timeout != NULL && timeout[0] != 0 ? 0 : 30 * 60 * 1000;
  nc_read_forward(forward == NULL ? "" : forward, &settings);
}

const struct nc_settings *nc_settings(void) {
  pthread_once(&once, read_environment);
  return &settings;
}

ncclResult_t nc_check_settings(void) {
  const struct nc_settings *s = nc_settings();
  return s->bad[0] == 0 ? ncclSuccess : nc_fail(NULL, ncclInvalidUsage, "SHUNT_NCCL_FORWARD=%s: %s", s->value, s->bad);
}

ncclResult_t nc_read_config(const ncclConfig_t *given, ncclConfig_t *config, const char *function) {
  *config = (ncclConfig_t){.size = sizeof *config, .magic = NC_MAGIC, .blocking = NC_UNDEF_INT,
                           .cgaClusterSize = NC_UNDEF_INT, .minCTAs = NC_UNDEF_INT, .maxCTAs = NC_UNDEF_INT,
                           .splitShare = NC_UNDEF_INT, .trafficClass = NC_UNDEF_INT};
  if (given == NULL)
    return ncclSuccess;
  if (given->magic != NC_MAGIC)
    return nc_fail(NULL, ncclInvalidArgument, "%s: config.magic is %#x; start from NCCL_CONFIG_INITIALIZER", function,
                   given->magic);
  if (given->size < offsetof(ncclConfig_t, cgaClusterSize) || given->size > 4096)
    return nc_fail(NULL, ncclInvalidArgument, "%s: config.size is %zu; start from NCCL_CONFIG_INITIALIZER", function,
                   given->size);
  const ncclConfig_t defaults = *config;
  memcpy(config, given, given->size < sizeof *config ? given->size : sizeof *config);
  /* As NCCL: what is younger than the program's version is not its own, but may be padding within the size. */
  if (given->version < 21400)
    config->blocking = defaults.blocking;
  if (given->version < 21700) {
    config->cgaClusterSize = defaults.cgaClusterSize;
    config->minCTAs = defaults.minCTAs;
    config->maxCTAs = defaults.maxCTAs;
  }
  if (given->version < 21800)
    config->splitShare = defaults.splitShare;
  if (config->blocking != NC_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
    return nc_fail(NULL, ncclInvalidArgument, "%s: config.blocking is %d; want 0 or 1", function, config->blocking);
  const struct {
    const char *name;
    int value, least, most;
  } ranges[] = {
      {"maxCTAs", config->maxCTAs, 1, INT32_MAX},
      {"minCTAs", config->minCTAs, 1, config->maxCTAs == NC_UNDEF_INT ? INT32_MAX : config->maxCTAs},
      {"cgaClusterSize", config->cgaClusterSize, 0, INT32_MAX},
      {"splitShare", config->splitShare, 0, 1},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (ranges[i].value != NC_UNDEF_INT && (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most))
      return nc_fail(NULL, ncclInvalidArgument, "%s: config.%s is %d; want %d to %d", function, ranges[i].name,
                     ranges[i].value, ranges[i].least, ranges[i].most);
  return ncclSuccess;
}

ncclResult_t nc_with_config(ncclComm_t comm, const ncclCollConfig_t *config, enum nc_symbol symbol) {
  if (!nc_can_queue(comm))
    return nc_reject(comm, nc_name(symbol));
  if (config == NULL || (config->magic == NC_MAGIC && config->size >= sizeof *config))
    return ncclSuccess; /* what it tunes is NCCL's */
  return nc_fail(comm, ncclInvalidArgument, "%s: config.magic is %#x and its size %zu; start from "
                 "NCCL_COLLCONFIG_INITIALIZER", nc_name(symbol), config->magic, config->size);
}

ncclResult_t nc_GetVersion(int *version) {
  if (version == NULL)
    return nc_fail_alone(NULL, ncclInvalidArgument, "ncclGetVersion: version is NULL");
  if (nc_settings()->forward) {
    if (nc_real(NC_ncclGetVersion) == NULL)
      return nc_lacks(NULL, NC_ncclGetVersion);
    return nc_came(NULL, NC_REAL(ncclGetVersion)(version));
  }
  *version = 22809; /* what is served is that of 2.28, whatever the real one is */
  return ncclSuccess;
}
