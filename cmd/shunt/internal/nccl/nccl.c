/* nccl.c: see nccl.h. */
#include "nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char bytes[128];
} unique_id;

/* The functions that are needed; NCCL 2.27 and newer have them all. */
static struct {
  void *library;
  int (*GetVersion)(int *);
  int (*GetUniqueId)(unique_id *);
  int (*CommInitRank)(void **, int, unique_id, int);
  int (*CommDestroy)(void *);
  int (*MemAlloc)(void **, size_t);
  int (*MemFree)(void *);
  int (*CommWindowRegister)(void *, void *, size_t, void **, int);
  int (*CommWindowDeregister)(void *, void *);
  int (*AllReduce)(const void *, void *, size_t, int, int, void *, void *);
  int (*AllGather)(const void *, void *, size_t, int, void *, void *);
  int (*ReduceScatter)(const void *, void *, size_t, int, int, void *, void *);
  int (*Broadcast)(const void *, void *, size_t, int, int, void *, void *);
  int (*Reduce)(const void *, void *, size_t, int, int, int, void *, void *);
  int (*AlltoAll)(const void *, void *, size_t, int, void *, void *); /* 2.28 and newer */
  int (*Send)(const void *, size_t, int, int, void *, void *);
  int (*Recv)(void *, size_t, int, int, void *, void *);
  int (*GroupStart)(void);
  int (*GroupEnd)(void);
  const char *(*GetErrorString)(int);
} nccl;

static int (*set_current)(void *);

enum { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll, kSend, kRecv };
enum { kInternalError = 3, kSymmetric = 1 };

int bn_load(const char *path, char *message, size_t capacity) {
  void *cuda;
  if (nccl.library != NULL)
    return 0;
  cuda = dlopen("libcuda.so.1", RTLD_NOW);
  set_current = cuda != NULL ? (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent") : NULL;
  if (set_current == NULL) {
    snprintf(message, capacity, "%s", dlerror());
    return 1;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(message, capacity, "%s", dlerror());
    return 1;
  }
  struct {
    const char *name;
    void **function;
    int optional;
  } table[] = {
#define FIND(name, optional) {"nccl" #name, (void **)&nccl.name, optional}
      FIND(GetVersion, 0),         FIND(GetUniqueId, 0),          FIND(CommInitRank, 0), FIND(CommDestroy, 0),
      FIND(MemAlloc, 0),             FIND(MemFree, 0),      FIND(CommWindowRegister, 0),
      FIND(CommWindowDeregister, 0), FIND(AllReduce, 0),          FIND(AllGather, 0),    FIND(ReduceScatter, 0),
      FIND(Broadcast, 0),          FIND(Reduce, 0),               FIND(AlltoAll, 1),     FIND(Send, 0),
      FIND(Recv, 0),               FIND(GroupStart, 0),           FIND(GroupEnd, 0),     FIND(GetErrorString, 0),
#undef FIND
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    *table[i].function = dlsym(library, table[i].name);
    if (*table[i].function == NULL && !table[i].optional) {
      snprintf(message, capacity, "%s has no %s; NCCL 2.27 or newer is needed", path, table[i].name);
      return 1;
    }
  }
  nccl.library = library;
  return 0;
}

int bn_enter(uint64_t context) { return set_current((void *)(uintptr_t)context); }

int bn_version(int *version) { return nccl.GetVersion(version); }

int bn_has_all_to_all(void) { return nccl.AlltoAll != NULL; }

int bn_unique_id(void *id) { return nccl.GetUniqueId(id); }

int bn_init(void **comm, int world, const void *id, int rank) {
  unique_id copy;
  memcpy(&copy, id, sizeof copy);
  return nccl.CommInitRank(comm, world, copy, rank);
}

int bn_destroy(void *comm) { return nccl.CommDestroy(comm); }

int bn_window(void *comm, size_t bytes, void **memory, void **window) {
  int r = nccl.MemAlloc(memory, bytes);
  return r != 0 ? r : nccl.CommWindowRegister(comm, *memory, bytes, window, kSymmetric);
}

int bn_window_free(void *comm, void *memory, void *window) {
  int r = window != NULL ? nccl.CommWindowDeregister(comm, window) : 0;
  int f = memory != NULL ? nccl.MemFree(memory) : 0;
  return r != 0 ? r : f;
}

static int submit(void *comm, void *stream, const bn_operation *o) {
  size_t n = (size_t)o->count;
  switch (o->kind) {
  case kAllReduce: return nccl.AllReduce(o->send, o->recv, n, o->dtype, o->op, comm, stream);
  case kReduce: return nccl.Reduce(o->send, o->recv, n, o->dtype, o->op, o->peer, comm, stream);
  case kBroadcast: return nccl.Broadcast(o->send, o->recv, n, o->dtype, o->peer, comm, stream);
  case kAllGather: return nccl.AllGather(o->send, o->recv, n, o->dtype, comm, stream);
  case kReduceScatter: return nccl.ReduceScatter(o->send, o->recv, n, o->dtype, o->op, comm, stream);
  case kAllToAll: return nccl.AlltoAll(o->send, o->recv, n, o->dtype, comm, stream);
  case kSend: return nccl.Send(o->send, n, o->dtype, o->peer, comm, stream);
  case kRecv: return nccl.Recv(o->recv, n, o->dtype, o->peer, comm, stream);
  }
  return kInternalError;
}

int bn_submit(void *comm, void *stream, const bn_operation *operations, int count) {
  int r, end;
  if (count == 1)
    return submit(comm, stream, operations);
  r = nccl.GroupStart();
  if (r != 0)
    return r;
  for (int i = 0; i < count && r == 0; i++)
    r = submit(comm, stream, operations + i);
  end = nccl.GroupEnd();
  return r != 0 ? r : end;
}

const char *bn_error(int result) { return nccl.GetErrorString(result); }
