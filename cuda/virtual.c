/* virtual.c: memory that is created, exported and mapped by handle; see driver.h. */
#include <string.h>
#include <unistd.h>

#include "call.h"

/* CUmemAllocationProp and CUmemAccessDesc. */
typedef struct {
  int type, handle_types;
  struct {
    int type, id;
  } location;
  void *win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} allocation_prop;

typedef struct {
  struct {
    int type, id;
  } location;
  int flags;
} access_desc;

/* Maps a handle at reserved addresses, for one device. */
static int place(int device, sc_ptr at, uint64_t bytes, uint64_t handle) {
  const access_desc access = {{1, device}, 3}; /* this device, read and write */
  TRY(cu.MemMap(at, bytes, 0, handle, 0));
  int result = cu.MemSetAccess(at, bytes, &access, 1);
  if (result) cu.MemUnmap(at, bytes);
  return result;
}

static int map(int device, uint64_t granularity, sc_mapping *m) {
  TRY(cu.MemAddressReserve(&m->address, m->bytes, granularity, 0, 0));
  int result = place(device, m->address, m->bytes, m->handle);
  if (result) cu.MemAddressFree(m->address, m->bytes);
  return result;
}

#define NEED_VIRTUAL_MEMORY            \
  NEED(MemGetAllocationGranularity);   \
  NEED(MemCreate);                     \
  NEED(MemRelease);                    \
  NEED(MemAddressReserve);             \
  NEED(MemAddressFree);                \
  NEED(MemMap);                        \
  NEED(MemUnmap);                      \
  NEED(MemSetAccess)

static int granule(int device, allocation_prop *prop, size_t *granularity) {
  memset(prop, 0, sizeof *prop);
  prop->type = 1;         /* pinned */
  prop->handle_types = 1; /* POSIX file descriptor */
  prop->location.type = 1;
  prop->location.id = device;
  return cu.MemGetAllocationGranularity(granularity, prop, 1 /* recommended */);
}

int sc_create(sc_handle context, int device, uint64_t bytes, sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  allocation_prop prop;
  size_t granularity;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (result) break;
    m->bytes = (bytes + granularity - 1) / granularity * granularity;
    result = cu.MemCreate(&m->handle, m->bytes, &prop, 0);
    if (result) break;
    result = map(device, granularity, m);
    if (result) cu.MemRelease(m->handle);
  });
}

int sc_export(sc_handle context, uint64_t handle, int *fd) {
  NEED(MemExportToShareableHandle);
  WITH(context, { result = cu.MemExportToShareableHandle(fd, handle, 1, 0); });
}

int sc_import(sc_handle context, int device, int fd, uint64_t bytes, sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  NEED(MemImportFromShareableHandle);
  allocation_prop prop;
  size_t granularity;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (result) break;
    m->bytes = bytes;
    result = cu.MemImportFromShareableHandle(&m->handle, (void *)(intptr_t)fd, 1);
    if (result) break;
    result = map(device, granularity, m);
    if (result) cu.MemRelease(m->handle);
  });
}

int sc_unmap(sc_handle context, const sc_mapping *m) {
  NEED_VIRTUAL_MEMORY;
  WITH(context, {
    /* Every step is tried; the first failure is reported. */
    result = cu.MemUnmap(m->address, m->bytes);
    int r = cu.MemAddressFree(m->address, m->bytes);
    result = result ? result : r;
    r = cu.MemRelease(m->handle);
    result = result ? result : r;
  });
}

/* ---- memory of several handles behind each other ------------------------------- */

int sc_export_chunk(sc_handle context, sc_ptr address, sc_chunk *c) {
  NEED(MemRetainAllocationHandle);
  NEED(MemExportToShareableHandle);
  NEED(MemRelease);
  NEED(PointerGetAttribute);
  NEED(MemGetAddressRange);
  WITH(context, {
    uint64_t handle;
    result = cu.MemRetainAllocationHandle(&handle, P(address));
    if (result) break;
    /* The mapping that the address lies in; older drivers know only
     * the range, which is the same for memory that is mapped by handle. */
    size_t bytes = 0;
    if (cu.PointerGetAttribute(&c->address, 19, address) || cu.PointerGetAttribute(&bytes, 18, address))
      result = cu.MemGetAddressRange(&c->address, &bytes, address);
    c->bytes = bytes;
    if (!result) result = cu.PointerGetAttribute(&c->buffer_id, 7, address);
    if (!result) result = cu.PointerGetAttribute(&c->device, 9, address);
    if (!result) result = cu.MemExportToShareableHandle(&c->fd, handle, 1, 0);
    int r = cu.MemRelease(handle);
    if (!result && r) {
      result = r;
      close(c->fd);
    }
  });
}

int sc_still_mapped(sc_handle context, const sc_ptr *at, const uint64_t *ids, int count, int *same) {
  NEED(PointerGetAttribute);
  *same = 1;
  WITH(context, {
    for (int i = 0; i < count && !result && *same; i++) {
      uint64_t id = 0;
      result = cu.PointerGetAttribute(&id, 7, at[i]);
      *same = !result && id == ids[i];
      if (result == 1) result = 0; /* nothing is mapped there */
    }
  });
}

static void unmap_chunks(const sc_mapping *chunks, int count, int *result) {
  for (int i = 0; i < count; i++) {
    int r = cu.MemUnmap(chunks[i].address, chunks[i].bytes);
    if (!*result) *result = r;
    r = cu.MemRelease(chunks[i].handle);
    if (!*result) *result = r;
  }
}

int sc_import_range(sc_handle context, int device, const int *fds, sc_mapping *chunks, int count, sc_ptr *address,
                    uint64_t *bytes) {
  NEED_VIRTUAL_MEMORY;
  NEED(MemImportFromShareableHandle);
  allocation_prop prop;
  size_t granularity;
  *bytes = 0;
  for (int i = 0; i < count; i++) *bytes += chunks[i].bytes;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (result) break;
    result = cu.MemAddressReserve(address, *bytes, granularity, 0, 0);
    if (result) break;
    sc_ptr at = *address;
    int i = 0;
    for (; i < count; i++) {
      chunks[i].address = at;
      at += chunks[i].bytes;
      result = cu.MemImportFromShareableHandle(&chunks[i].handle, (void *)(intptr_t)fds[i], 1);
      if (result) break;
      result = place(device, chunks[i].address, chunks[i].bytes, chunks[i].handle);
      if (result) {
        cu.MemRelease(chunks[i].handle);
        break;
      }
    }
    if (result) {
      int ignored = 0; /* the first failure is reported */
      unmap_chunks(chunks, i, &ignored);
      cu.MemAddressFree(*address, *bytes);
    }
  });
}

int sc_reserve(sc_handle context, int device, uint64_t bytes, sc_ptr *address) {
  NEED_VIRTUAL_MEMORY;
  allocation_prop prop;
  size_t granularity;
  WITH(context, {
    result = granule(device, &prop, &granularity);
    if (!result) result = cu.MemAddressReserve(address, bytes, granularity, 0, 0);
  });
}

int sc_map_chunk(sc_handle context, int device, int fd, sc_mapping *chunk) {
  NEED_VIRTUAL_MEMORY;
  NEED(MemImportFromShareableHandle);
  WITH(context, {
    result = cu.MemImportFromShareableHandle(&chunk->handle, (void *)(intptr_t)fd, 1);
    if (result) break;
    result = place(device, chunk->address, chunk->bytes, chunk->handle);
    if (result) cu.MemRelease(chunk->handle);
  });
}

int sc_unmap_range(sc_handle context, const sc_mapping *chunks, int count, sc_ptr address, uint64_t bytes) {
  NEED_VIRTUAL_MEMORY;
  WITH(context, {
    unmap_chunks(chunks, count, &result);
    int r = cu.MemAddressFree(address, bytes);
    if (!result) result = r;
  });
}
