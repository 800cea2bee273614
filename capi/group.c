/*
 * group.c: groups. A group is a list of operations that belongs to one thread
 * and one communicator; it lives here, in C, and crosses into Go as an array
 * when it ends.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "internal.h"

struct group {
  struct group *next;
  shunt_comm comm;
  int32_t depth;
  int64_t count, capacity;
  shunt_operation *operations;
};

/* The number of groups that are open anywhere: while it is zero, no call looks for
 * one. Relaxed is enough: a thread sees its own increment, and needs no other's. */
static atomic_int open_groups;

static pthread_key_t key;
static int have_key;

static void free_operations(struct group *g) {
  free(g->operations);
  free(g);
}

static void free_groups(void *list) {
  struct group *g = list;
  while (g != NULL) {
    struct group *next = g->next;
    free_operations(g);
    atomic_fetch_sub_explicit(&open_groups, 1, memory_order_relaxed);
    g = next;
  }
}

__attribute__((constructor)) static void make_key(void) { have_key = pthread_key_create(&key, free_groups) == 0; }

/* find is the thread's group on comm, or NULL. */
static struct group *find(shunt_comm comm) {
  if (atomic_load_explicit(&open_groups, memory_order_relaxed) == 0 || !have_key)
    return NULL;
  for (struct group *g = pthread_getspecific(key); g != NULL; g = g->next)
    if (g->comm == comm)
      return g;
  return NULL;
}

int shunt_group_is_open(shunt_comm comm) { return find(comm) != NULL; }

int shunt_group_takes(shunt_comm comm, const shunt_operation *operation, shunt_status *status) {
  struct group *g = find(comm);
  if (g == NULL)
    return 0;
  *status = SHUNT_OK;
  if (g->count == g->capacity) {
    int64_t capacity = g->capacity == 0 ? 16 : 2 * g->capacity;
    shunt_operation *grown = realloc(g->operations, (size_t)capacity * sizeof *grown);
    if (grown == NULL) {
      *status = shunt_fail(comm, SHUNT_OUT_OF_MEMORY, "no memory for %lld operations in a group", (long long)capacity);
      return 1;
    }
    g->operations = grown;
    g->capacity = capacity;
  }
  shunt_operation *queued = &g->operations[g->count++];
  *queued = *operation;
  /* No operation that a group takes reads them, so they may point anywhere. */
  queued->send_counts = queued->send_displs = queued->recv_counts = queued->recv_displs = NULL;
  return 1;
}

shunt_status shunt_group_start(shunt_comm comm) {
  struct group *g;
  int32_t world;
  shunt_status status;
  if (shunt_forked())
    return SHUNT_FORKED;
  g = find(comm);
  if (g != NULL) {
    g->depth++;
    return SHUNT_OK;
  }
  status = go_world(SHUNT_NUMBER(comm), &world);
  if (status != SHUNT_OK)
    return status;
  g = calloc(1, sizeof *g);
  if (g == NULL || !have_key)
    goto no_memory;
  g->comm = comm;
  g->depth = 1;
  g->next = pthread_getspecific(key);
  if (pthread_setspecific(key, g) != 0)
    goto no_memory;
  atomic_fetch_add_explicit(&open_groups, 1, memory_order_relaxed);
  return SHUNT_OK;
no_memory:
  free(g);
  return shunt_fail(comm, SHUNT_OUT_OF_MEMORY, "no memory for a group");
}

static void unlink_group(struct group *g) {
  struct group *head = pthread_getspecific(key);
  if (head == g)
    pthread_setspecific(key, g->next);
  else
    for (struct group *at = head; at != NULL; at = at->next)
      if (at->next == g) {
        at->next = g->next;
        break;
      }
  atomic_fetch_sub_explicit(&open_groups, 1, memory_order_relaxed);
}

shunt_status shunt_group_cancel(shunt_comm comm) {
  struct group *g;
  if (shunt_forked())
    return SHUNT_FORKED;
  g = find(comm);
  if (g == NULL)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT,
                      "shunt_group_cancel: this thread has no open group on this communicator");
  unlink_group(g);
  free_operations(g);
  return SHUNT_OK;
}

shunt_status shunt_group_end(shunt_comm comm) {
  struct group *g;
  shunt_status status = SHUNT_OK;
  if (shunt_forked())
    return SHUNT_FORKED;
  g = find(comm);
  if (g == NULL)
    return shunt_fail(comm, SHUNT_INVALID_ARGUMENT,
                      "shunt_group_end: this thread has no open group on this communicator");
  if (--g->depth > 0)
    return SHUNT_OK;
  unlink_group(g);
  if (g->count > 0)
    status = go_run_group(SHUNT_NUMBER(comm), g->operations, g->count);
  free_operations(g);
  return status;
}

shunt_status shunt_run_together(const shunt_comm *comms, const shunt_operation *operations, int64_t count) {
  shunt_status status = SHUNT_OK;
  if (shunt_forked())
    return SHUNT_FORKED;
  if (count == 0)
    return SHUNT_OK;
  if (count < 0 || count > INT32_MAX)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_run_together: count is %lld; want 0 to %d", (long long)count,
                      INT32_MAX);
  if (comms == NULL || operations == NULL)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_run_together: %s is NULL",
                      comms == NULL ? "comms" : "operations");
  uint64_t *numbers = malloc((size_t)count * sizeof *numbers);
  shunt_operation *read = malloc((size_t)count * sizeof *read);
  if (numbers == NULL || read == NULL)
    status = shunt_fail(NULL, SHUNT_OUT_OF_MEMORY, "no memory for %lld operations", (long long)count);
  for (int64_t i = 0; i < count && status == SHUNT_OK; i++) {
    numbers[i] = SHUNT_NUMBER(comms[i]);
    if (find(comms[i]) != NULL)
      status = shunt_refuse(comms[i], "run_together",
                            "shunt_run_together: this thread has an open group on a communicator");
    else
      status = shunt_read_operation(comms[i],
                                    (const shunt_operation *)(const void *)((const char *)operations +
                                                                            (size_t)i * operations[0].struct_size),
                                    &read[i]);
  }
  if (status == SHUNT_OK)
    status = go_run_together(numbers, read, count);
  free(numbers);
  free(read);
  return status;
}
