/*
 * table.h: finding, checking and calling the table of a shared object. Go
 * cannot call C function pointers, so each has a function here; all of them
 * take the host's own copy of the table.
 */
#ifndef SHUNT_SHARED_TABLE_H
#define SHUNT_SHARED_TABLE_H

#include "shunt_transport.h"

/* Start of every version of the table; never changes. */
typedef struct shunt_table_head {
  uint64_t magic;
  uint32_t version_major;
  uint32_t version_minor;
  uint64_t struct_size;
} shunt_table_head;

/* The table of a loaded object, or null; *symbol_bytes is its size according
 * to the object's symbol table, 0 if that does not say. */
const void *shunt_table_find(void *handle, uint64_t *symbol_bytes);

/* Calls the object's ready function; 0 if it has none. */
int shunt_table_ready(void *handle);

/* dlerror as it stands, never null. */
const char *shunt_table_error(void);

static inline void shunt_call_supports(const shunt_transport_v1 *t, const shunt_request *r, shunt_support *s) {
  t->supports(r, s);
}
static inline shunt_status shunt_call_open(const shunt_transport_v1 *t, const shunt_open_config *c, shunt_endpoint **e,
                                           char *message, size_t bytes) {
  return t->open(c, e, message, bytes);
}
static inline shunt_status shunt_call_regions(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_region **r,
                                              uint32_t *n) {
  return t->regions(e, r, n);
}
static inline shunt_status shunt_call_images(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_image **i,
                                             uint32_t *n) {
  return t->images(e, i, n);
}
static inline shunt_status shunt_call_allocate(const shunt_transport_v1 *t, shunt_endpoint *e, uint32_t id,
                                               int64_t bytes, shunt_region *r) {
  return t->allocate(e, id, bytes, r);
}
static inline shunt_status shunt_call_free(const shunt_transport_v1 *t, shunt_endpoint *e, uint32_t id) {
  return t->free(e, id);
}
static inline shunt_status shunt_call_prepare(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_request *r,
                                              const char *algorithm, const shunt_plan **p) {
  return t->prepare(e, r, algorithm, p);
}
static inline void shunt_call_free_plan(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_plan *p) {
  t->free_plan(e, p);
}
static inline const char *shunt_call_last_error(const shunt_transport_v1 *t, shunt_endpoint *e) {
  return t->last_error(e);
}
static inline shunt_status shunt_call_publish(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_request *r,
                                              const char *algorithm, shunt_published *p) {
  return t->publish(e, r, algorithm, p);
}
static inline shunt_status shunt_call_connect(const shunt_transport_v1 *t, shunt_endpoint *e, const shunt_request *r,
                                              const char *algorithm, const shunt_published *p, uint32_t n,
                                              int64_t timeout) {
  return t->connect(e, r, algorithm, p, n, timeout);
}
static inline void shunt_call_abort(const shunt_transport_v1 *t, shunt_endpoint *e, const char *reason) {
  t->abort(e, reason);
}
static inline shunt_status shunt_call_check(const shunt_transport_v1 *t, shunt_endpoint *e, shunt_native_report *r) {
  return t->check(e, r);
}
static inline shunt_status shunt_call_register_memory(const shunt_transport_v1 *t, shunt_endpoint *e,
                                                      const shunt_memory *m, uint64_t *key, shunt_native_report *r) {
  return t->register_memory(e, m, key, r);
}
static inline shunt_status shunt_call_deregister_memory(const shunt_transport_v1 *t, shunt_endpoint *e, uint64_t key,
                                                        shunt_native_report *r) {
  return t->deregister_memory(e, key, r);
}
static inline shunt_status shunt_call_close(const shunt_transport_v1 *t, shunt_endpoint *e, char *message,
                                            size_t message_bytes) {
  return t->close(e, message, message_bytes);
}

#endif
