/*
 * allocator.c: the calls of shunt.h on allocators, and the plain functions of
 * shunt_allocator_functions, which have no argument that could say whose they are.
 */
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* The handles and devices of the allocators that have functions; 0: a free place. A place
 * is taken by a compare-and-swap of its handle and then given its device. */
#define PLACES 64
static struct {
  uint64_t allocator;
  int32_t device;
} places[PLACES];

static void *alloc_at(int place, ptrdiff_t bytes, int device, void *stream) {
  void *memory = NULL;
  uint64_t number = __atomic_load_n(&places[place].allocator, __ATOMIC_ACQUIRE);
  int32_t served = __atomic_load_n(&places[place].device, __ATOMIC_RELAXED);
  if (shunt_forked())
    return NULL;
  if (number != 0 && device != served) {
    shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "alloc of %lld bytes on device %d: the allocator serves device %d",
               (long long)bytes, device, (int)served);
    return NULL;
  }
  if (go_allocator_alloc(number, bytes, stream, &memory) != SHUNT_OK)
    return NULL;
  return memory;
}

static void free_at(int place, void *memory, void *stream) {
  uint64_t number = __atomic_load_n(&places[place].allocator, __ATOMIC_ACQUIRE);
  if (shunt_forked() || memory == NULL)
    return;
  if (go_allocator_free(number, memory, stream) != SHUNT_OK)
    fprintf(stderr, "shunt: %s\n", shunt_last_error(NULL)); /* the caller gets no status */
}

#define FUNCTIONS(n)                                                                                               \
  static void *alloc_##n(ptrdiff_t bytes, int device, void *stream) { return alloc_at(n, bytes, device, stream); } \
  static void free_##n(void *memory, size_t bytes, int device, void *stream) {                                     \
    (void)bytes, (void)device;                                                                                     \
    free_at(n, memory, stream);                                                                                    \
  }
#define ENTRY(n) {alloc_##n, free_##n},
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
/* Octal numbers: eight places a row. */
#define ALL(X) EIGHT(X, 0) EIGHT(X, 01) EIGHT(X, 02) EIGHT(X, 03) EIGHT(X, 04) EIGHT(X, 05) EIGHT(X, 06) EIGHT(X, 07)

ALL(FUNCTIONS)

static const struct {
  shunt_alloc_fn alloc;
  shunt_free_fn free;
} functions[PLACES] = {ALL(ENTRY)};

shunt_status shunt_allocator_create(shunt_comm comm, uint32_t flags, int64_t segment_bytes,
                                    shunt_allocator *allocator) {
  uint64_t number = 0;
  shunt_status status;
  GUARD();
  NEED(comm, allocator);
  *allocator = NULL;
  if ((flags & ~SHUNT_ALLOCATOR_SYMMETRIC) != 0)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT,
                      "shunt_allocator_create: flags are %#x; want 0 or SHUNT_ALLOCATOR_SYMMETRIC", (unsigned)flags);
  status = go_allocator_create(SHUNT_NUMBER(comm), (flags & SHUNT_ALLOCATOR_SYMMETRIC) != 0, segment_bytes, &number);
  *allocator = (shunt_allocator)(uintptr_t)number;
  return status;
}

shunt_status shunt_allocator_alloc(shunt_allocator allocator, int64_t bytes, void *stream, void **memory) {
  GUARD();
  NEED(NULL, memory);
  *memory = NULL;
  return go_allocator_alloc(SHUNT_NUMBER(allocator), bytes, stream, memory);
}

shunt_status shunt_allocator_free(shunt_allocator allocator, void *memory, void *stream) {
  GUARD();
  NEED(NULL, memory);
  return go_allocator_free(SHUNT_NUMBER(allocator), memory, stream);
}

shunt_status shunt_allocator_record_stream(shunt_allocator allocator, const void *memory, void *stream) {
  GUARD();
  NEED(NULL, memory);
  return go_allocator_record_stream(SHUNT_NUMBER(allocator), (void *)(uintptr_t)memory, stream);
}

shunt_status shunt_allocator_reserve(shunt_allocator allocator, int64_t bytes) {
  GUARD();
  return go_allocator_reserve(SHUNT_NUMBER(allocator), bytes);
}

shunt_status shunt_allocator_trim(shunt_allocator allocator) {
  GUARD();
  return go_allocator_trim(SHUNT_NUMBER(allocator));
}

shunt_status shunt_allocator_get_stats(shunt_allocator allocator, shunt_allocator_stats *stats) {
  shunt_allocator_stats mine;
  shunt_status status;
  size_t size;
  GUARD();
  NEED(NULL, stats);
  size = stats->struct_size;
  if (size < sizeof(size_t) + sizeof(int64_t) || size > 4096)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT,
                      "shunt_allocator_get_stats: struct_size is %zu; want sizeof(shunt_allocator_stats), %zu", size,
                      sizeof(mine));
  memset(&mine, 0, sizeof(mine));
  status = go_allocator_get_stats(SHUNT_NUMBER(allocator), &mine);
  mine.struct_size = size;
  memcpy(stats, &mine, size < sizeof(mine) ? size : sizeof(mine));
  return status;
}

shunt_status shunt_allocator_functions(shunt_allocator allocator, shunt_alloc_fn *alloc, shunt_free_fn *free) {
  uint64_t number = SHUNT_NUMBER(allocator);
  int32_t device = 0;
  shunt_status status;
  int i, place = -1;
  GUARD();
  NEED(NULL, alloc);
  NEED(NULL, free);
  *alloc = NULL;
  *free = NULL;
  status = go_allocator_device(number, &device);
  if (status != SHUNT_OK)
    return status;
  for (i = 0; i < PLACES && place < 0; i++)
    if (__atomic_load_n(&places[i].allocator, __ATOMIC_ACQUIRE) == number)
      place = i;
  for (i = 0; i < PLACES && place < 0; i++) {
    uint64_t none = 0;
    if (__atomic_compare_exchange_n(&places[i].allocator, &none, number, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
      place = i;
  }
  if (place < 0)
    return shunt_fail(NULL, SHUNT_OUT_OF_MEMORY,
                      "shunt_allocator_functions: %d allocators of this process have functions already; destroy some",
                      PLACES);
  /* Also where another thread has taken the place and not yet stored this: the caller may use the functions at once. */
  __atomic_store_n(&places[place].device, device, __ATOMIC_RELEASE);
  *alloc = functions[place].alloc;
  *free = functions[place].free;
  return SHUNT_OK;
}

shunt_status shunt_allocator_destroy(shunt_allocator allocator) {
  uint64_t number = SHUNT_NUMBER(allocator);
  shunt_status status;
  int32_t gone = 0;
  int i;
  GUARD();
  status = go_allocator_destroy(number, &gone);
  for (i = 0; i < PLACES && gone; i++) {
    uint64_t mine = number;
    __atomic_compare_exchange_n(&places[i].allocator, &mine, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  }
  return status;
}
