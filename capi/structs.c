/*
 * structs.c: reads structs of callers that were compiled with another version
 * of shunt.h. A shorter struct is completed with the defaults; a longer one is
 * taken if what we do not know is zero.
 */
#include <string.h>

#include "internal.h"

/* The first version of each struct, which is the shortest that is valid. */
#define OPTIONS_FIRST offsetof(shunt_options, cancel)
#define OPERATION_FIRST offsetof(shunt_operation, counts_on_device)

/* No struct of ours will ever be longer; guards against a garbage size. */
#define LONGEST 4096

static shunt_status read_struct(shunt_comm comm, const char *what, const char *macro, const void *given, size_t first,
                                void *into, size_t ours) {
  const unsigned char *bytes = given;
  size_t size, i;
  memcpy(&size, given, sizeof size);
  if (size < first || size > LONGEST)
    return shunt_refuse(comm, "run", "%s.struct_size is %zu, want sizeof(%s) = %zu: start from %s",
                      what, size, what, ours, macro);
  for (i = ours; i < size; i++)
    if (bytes[i] != 0)
      return shunt_refuse(comm, "run", "%s has a field at byte %zu that this library (version %d.%d) does not know",
                          what, i, SHUNT_API_MAJOR, SHUNT_API_MINOR);
  memcpy(into, given, size < ours ? size : ours);
  memcpy(into, &ours, sizeof ours);
  return SHUNT_OK;
}

shunt_status shunt_read_options(const shunt_options *given, shunt_options *options) {
  const shunt_options defaults = SHUNT_OPTIONS_INIT;
  *options = defaults;
  if (given == NULL)
    return SHUNT_OK;
  shunt_status status =
      read_struct(NULL, "shunt_options", "SHUNT_OPTIONS_INIT", given, OPTIONS_FIRST, options, sizeof *options);
  if (status == SHUNT_OK && options->flags != 0)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_options.flags is %#llx; no flag is known, want 0",
                      (unsigned long long)options->flags);
  if (status == SHUNT_OK && options->reserved != 0)
    return shunt_fail(NULL, SHUNT_INVALID_ARGUMENT, "shunt_options.reserved is %d, want 0", (int)options->reserved);
  return status;
}

shunt_status shunt_read_operation(shunt_comm comm, const shunt_operation *given, shunt_operation *operation) {
  const shunt_operation defaults = SHUNT_OPERATION_INIT;
  *operation = defaults;
  if (given == NULL)
    return shunt_refuse(comm, "run", "operation is NULL");
  shunt_status status =
      read_struct(comm, "shunt_operation", "SHUNT_OPERATION_INIT", given, OPERATION_FIRST, operation,
                  sizeof *operation);
  if (status == SHUNT_OK && (operation->counts_on_device > 1 || operation->reserved != 0))
    return shunt_refuse(comm, "run",
                        "shunt_operation.counts_on_device is %u and reserved is %u; want 0 or 1, and 0",
                        (unsigned)operation->counts_on_device, (unsigned)operation->reserved);
  return status;
}
