/* device.c: devices and their primary contexts; see driver.h. */
#include <string.h>

#include "call.h"

int sc_device_count(int *count) {
  NEED(DeviceGetCount);
  return cu.DeviceGetCount(count);
}

int sc_device_info(int ordinal, sc_device *info) {
  int device;
  size_t total;
  NEED(DeviceGet);
  NEED(DeviceGetName);
  NEED(DeviceGetUuid);
  NEED(DeviceTotalMem);
  NEED(DeviceGetPCIBusId);
  NEED(DeviceGetAttribute);
  memset(info, 0, sizeof *info);
  TRY(cu.DeviceGet(&device, ordinal));
  TRY(cu.DeviceGetName(info->name, sizeof info->name, device));
  TRY(cu.DeviceGetUuid(info->uuid, device));
  TRY(cu.DeviceTotalMem(&total, device));
  TRY(cu.DeviceGetPCIBusId(info->bus, sizeof info->bus, device));
  info->total_memory = (int64_t)total;
  const struct {
    int *to, attribute;
  } wanted[] = {
      {&info->major, 75}, {&info->minor, 76}, {&info->multiprocessors, 16}, {&info->virtual_memory, 102},
      {&info->posix_handles, 103}, {&info->cooperative, 95}, {&info->stream_memory_ops, 122}, {&info->max_shared, 97},
      {&info->domains, 126},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (cu.DeviceGetAttribute(wanted[i].to, wanted[i].attribute, device))
      *wanted[i].to = 0; /* an older driver does not know it */
  return 0;
}

int sc_can_access(int device, int peer, int *can) {
  NEED(DeviceCanAccessPeer);
  return cu.DeviceCanAccessPeer(can, device, peer);
}

int sc_retain(int ordinal, sc_handle *context) {
  void *c;
  NEED(DevicePrimaryCtxRetain);
  TRY(cu.DevicePrimaryCtxRetain(&c, ordinal));
  *context = (uintptr_t)c;
  return 0;
}

int sc_release(int ordinal) {
  NEED(DevicePrimaryCtxRelease);
  return cu.DevicePrimaryCtxRelease(ordinal);
}

int sc_current(sc_handle *context) {
  void *c = NULL;
  NEED(CtxGetCurrent);
  TRY(cu.CtxGetCurrent(&c));
  *context = (uintptr_t)c;
  return 0;
}

int sc_synchronize(sc_handle context) {
  NEED(CtxSynchronize);
  WITH(context, { result = cu.CtxSynchronize(); });
}

int sc_enable_peer(sc_handle context, sc_handle peer) {
  NEED(CtxEnablePeerAccess);
  WITH(context, {
    result = cu.CtxEnablePeerAccess(P(peer), 0);
    if (result == 704) result = 0; /* already enabled */
  });
}
