/*
 * export.h: what the Go and C halves of the exporter say to each other.
 */
#ifndef SHUNT_EXPORT_H
#define SHUNT_EXPORT_H

#include "shunt_transport.h"

/* An endpoint: the Go one behind its handle, and what C callers see of it. */
struct shunt_endpoint {
  uintptr_t handle; /* cgo.Handle of the Go endpoint */
  char message[SHUNT_MAX_MESSAGE];
  shunt_region regions[SHUNT_MAX_REGIONS];
  uint32_t count_regions;
  uint32_t count_images;
  shunt_image *images;
  uint8_t published[SHUNT_MAX_PUBLISHED]; /* in the last exchange */
};

/* Fills in the table's description; 0 if a text does not fit. */
int shunt_export_describe(const char *name, const char *version, const char *doc, uint64_t features,
                          const uint32_t *memory, uint32_t count_memory, uint32_t max_world);

/* Zeroed memory for an array of an owned structure; never null for n > 0. */
void *shunt_export_array(size_t n, size_t bytes);

void shunt_export_free_endpoint(shunt_endpoint *endpoint);
void shunt_export_free_plan(const shunt_plan *plan);

#endif
