#include "_cgo_export.h"
#include "export.h"

#include <stdlib.h>
#include <string.h>

/* cgo's declarations of exported functions know no const; these do. */
static void supports(const shunt_request *request, shunt_support *support) {
  shunt_export_supports((shunt_request *)request, support);
}
static shunt_status open_endpoint(const shunt_open_config *config, shunt_endpoint **endpoint, char *message,
                                  size_t bytes) {
  return shunt_export_open((shunt_open_config *)config, endpoint, message, bytes);
}
static shunt_status regions(shunt_endpoint *endpoint, const shunt_region **regions, uint32_t *count) {
  if (endpoint == NULL || regions == NULL || count == NULL) return SHUNT_INVALID_ARGUMENT;
  *regions = endpoint->regions;
  *count = endpoint->count_regions;
  return SHUNT_OK;
}
static shunt_status images(shunt_endpoint *endpoint, const shunt_image **images, uint32_t *count) {
  if (endpoint == NULL || images == NULL || count == NULL) return SHUNT_INVALID_ARGUMENT;
  *images = endpoint->images;
  *count = endpoint->count_images;
  return SHUNT_OK;
}
static shunt_status allocate(shunt_endpoint *endpoint, uint32_t id, int64_t bytes, shunt_region *region) {
  return endpoint == NULL || region == NULL ? SHUNT_INVALID_ARGUMENT
                                            : shunt_export_allocate(endpoint, id, bytes, region);
}
static shunt_status free_buffer(shunt_endpoint *endpoint, uint32_t id) {
  return endpoint == NULL ? SHUNT_INVALID_ARGUMENT : shunt_export_free(endpoint, id);
}
static shunt_status prepare(shunt_endpoint *endpoint, const shunt_request *request, const char *algorithm,
                            const shunt_plan **plan) {
  if (endpoint == NULL || request == NULL || algorithm == NULL || plan == NULL) return SHUNT_INVALID_ARGUMENT;
  return shunt_export_prepare(endpoint, (shunt_request *)request, (char *)algorithm, (shunt_plan **)plan);
}
static void free_plan(shunt_endpoint *endpoint, const shunt_plan *plan) {
  (void)endpoint;
  shunt_export_free_plan(plan);
}
static shunt_status publish(shunt_endpoint *endpoint, const shunt_request *request, const char *algorithm,
                            shunt_published *published) {
  if (endpoint == NULL || published == NULL) return SHUNT_INVALID_ARGUMENT;
  return shunt_export_publish(endpoint, (shunt_request *)request, (char *)algorithm, published);
}
static shunt_status connect_endpoint(shunt_endpoint *endpoint, const shunt_request *request, const char *algorithm,
                                     const shunt_published *published, uint32_t count, int64_t timeout) {
  if (endpoint == NULL || (count > 0 && published == NULL)) return SHUNT_INVALID_ARGUMENT;
  return shunt_export_connect(endpoint, (shunt_request *)request, (char *)algorithm, (shunt_published *)published,
                              count, timeout);
}
static void abort_endpoint(shunt_endpoint *endpoint, const char *reason) {
  if (endpoint != NULL && reason != NULL) shunt_export_abort(endpoint, (char *)reason);
}
static shunt_status check(shunt_endpoint *endpoint, shunt_native_report *report) {
  return endpoint == NULL || report == NULL ? SHUNT_INVALID_ARGUMENT : shunt_export_check(endpoint, report);
}
static shunt_status register_memory(shunt_endpoint *endpoint, const shunt_memory *memory, uint64_t *key,
                                    shunt_native_report *report) {
  if (endpoint == NULL || memory == NULL || key == NULL || report == NULL) return SHUNT_INVALID_ARGUMENT;
  return shunt_export_register_memory(endpoint, (shunt_memory *)memory, key, report);
}
static shunt_status deregister_memory(shunt_endpoint *endpoint, uint64_t key, shunt_native_report *report) {
  return endpoint == NULL || report == NULL ? SHUNT_INVALID_ARGUMENT
                                            : shunt_export_deregister_memory(endpoint, key, report);
}
static const char *last_error(shunt_endpoint *endpoint) { return endpoint == NULL ? "no endpoint" : endpoint->message; }
static shunt_status close_endpoint(shunt_endpoint *endpoint, char *message, size_t bytes) {
  if (endpoint == NULL) return SHUNT_INVALID_ARGUMENT;
  shunt_status status = shunt_export_close(endpoint, message, bytes);
  shunt_export_free_endpoint(endpoint);
  return status;
}

static char name[SHUNT_MAX_NAME + 1];
static char version[SHUNT_MAX_MESSAGE + 1];
static char doc[SHUNT_MAX_MESSAGE + 1];
static shunt_memory_kind memory[16];

/* Not const: the description is filled in once the Go runtime is up. */
shunt_transport_v1 shunt_transport_v1_table = {
    .magic = SHUNT_TRANSPORT_MAGIC,
    .version_major = SHUNT_VERSION_MAJOR,
    .version_minor = SHUNT_VERSION_MINOR,
    .struct_size = sizeof(shunt_transport_v1),
    .name = name,
    .version = version,
    .doc = doc,
    .memory = memory,
    .supports = supports,
    .open = open_endpoint,
    .regions = regions,
    .images = images,
    .allocate = allocate,
    .free = free_buffer,
    .prepare = prepare,
    .free_plan = free_plan,
    .last_error = last_error,
    .close = close_endpoint,
    .publish = publish,
    .connect = connect_endpoint,
    .abort = abort_endpoint,
    .check = check,
    .register_memory = register_memory,
    .deregister_memory = deregister_memory,
};

/* Any call into Go waits until every init function has run. */
void shunt_transport_v1_ready(void) { shunt_export_ready(); }

static int put(char *to, size_t room, const char *from) {
  size_t n = strlen(from);
  if (n >= room) return 0;
  memcpy(to, from, n + 1);
  return 1;
}

int shunt_export_describe(const char *n, const char *v, const char *d, uint64_t features, const uint32_t *kinds,
                          uint32_t count, uint32_t max_world) {
  if (!put(name, sizeof name, n) || !put(version, sizeof version, v) || !put(doc, sizeof doc, d) ||
      count > sizeof memory / sizeof memory[0])
    return 0;
  for (uint32_t i = 0; i < count; i++) memory[i] = kinds[i];
  shunt_transport_v1_table.count_memory = count;
  shunt_transport_v1_table.features = features;
  shunt_transport_v1_table.max_world = max_world;
  return 1;
}

void *shunt_export_array(size_t n, size_t bytes) {
  if (n == 0) return NULL;
  void *p = calloc(n, bytes);
  if (p == NULL) abort(); /* as Go's own allocator does */
  return p;
}

void shunt_export_free_endpoint(shunt_endpoint *endpoint) {
  for (uint32_t i = 0; i < endpoint->count_images; i++) free((void *)endpoint->images[i].name); /* the data is Go's */
  free(endpoint->images);
  free(endpoint);
}

void shunt_export_free_plan(const shunt_plan *plan) {
  if (plan == NULL) return;
  for (uint32_t i = 0; i < plan->count_kernels; i++) {
    free((void *)plan->kernels[i].image);
    free((void *)plan->kernels[i].name);
  }
  free((void *)plan->consts);
  free((void *)plan->refs);
  free((void *)plan->steps);
  free((void *)plan->tracks);
  free((void *)plan->kernels);
  free((void *)plan->args);
  free((void *)plan->natives);
  free((void *)plan);
}
