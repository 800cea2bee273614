// cplusplus.cc: the table of a transport as C++ writes it, without extern "C" of its own.
#include "shunt_transport.h"

namespace {

const shunt_memory_kind memory[] = {SHUNT_MEMORY_HOST};

void supports(const shunt_request *, shunt_support *) {}

shunt_status open_endpoint(const shunt_open_config *, shunt_endpoint **, char *, size_t) { return SHUNT_UNSUPPORTED; }

shunt_status regions(shunt_endpoint *, const shunt_region **, uint32_t *) { return SHUNT_UNSUPPORTED; }

const char *last_error(shunt_endpoint *) { return ""; }

shunt_status close_endpoint(shunt_endpoint *, char *, size_t) { return SHUNT_OK; }

shunt_transport_v1 table() {
  shunt_transport_v1 t = {};
  t.magic = SHUNT_TRANSPORT_MAGIC;
  t.version_major = SHUNT_VERSION_MAJOR;
  t.version_minor = SHUNT_VERSION_MINOR;
  t.struct_size = sizeof t;
  t.name = "cplusplus";
  t.version = "1.0.0";
  t.doc = "written in C++";
  t.memory = memory;
  t.count_memory = 1;
  t.supports = supports;
  t.open = open_endpoint;
  t.regions = regions;
  t.last_error = last_error;
  t.close = close_endpoint;
  return t;
}

} // namespace

const shunt_transport_v1 shunt_transport_v1_table = table();
