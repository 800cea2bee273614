// A transport in C++: memory that the ranks of one host map. The host runs every collective on it.
#include <shunt_transport.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>

// A descriptor of its own object, so that an endpoint whose constructor throws leaks none.
struct Descriptor {
  const int number;
  explicit Descriptor(int fd) : number(fd) {
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  }
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() { close(number); }
};

// The header declares it: an endpoint may be a class, and needs no cast.
struct shunt_endpoint {
  Descriptor memory{memfd_create("scratch", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  shunt_region region{};

  explicit shunt_endpoint(const shunt_open_config &config) {
    if (config.count_options > 0)
      throw std::invalid_argument("scratch: unknown option " + std::string(config.options[0].name));
    region.role = SHUNT_ROLE_SCRATCH;
    region.memory = SHUNT_MEMORY_HOST;
    region.bytes = std::max(int64_t{1} << 20, int64_t{config.world} << 17);
    region.handle.kind = SHUNT_HANDLE_MEMFD;
    region.handle.fd = memory.number;
    region.handle.generation = 1;
    region.handle.bytes = region.bytes;
    if (ftruncate(memory.number, region.bytes)) throw std::system_error(errno, std::generic_category(), "ftruncate");
  }
};

namespace {

// Runs what may throw: no exception may leave a function of the table.
template <class F> shunt_status guarded(char *message, size_t bytes, F body) noexcept {
  const auto failed = [&](shunt_status status, const char *why) {
    std::snprintf(message, bytes, "%s", why);
    return status;
  };
  try {
    body();
    return SHUNT_OK;
  } catch (const std::invalid_argument &e) {
    return failed(SHUNT_INVALID_ARGUMENT, e.what());
  } catch (const std::system_error &e) {
    return failed(SHUNT_SYSTEM, e.what());
  } catch (const std::bad_alloc &e) {
    return failed(SHUNT_OUT_OF_MEMORY, e.what());
  } catch (const std::exception &e) {
    return failed(SHUNT_INTERNAL, e.what());
  } catch (...) {
    return failed(SHUNT_INTERNAL, "an exception of another type");
  }
}

void supports(const shunt_request *, shunt_support *support) {
  std::snprintf(support->reason, sizeof support->reason, "scratch has no plans of its own");
}

shunt_status open_endpoint(const shunt_open_config *config, shunt_endpoint **endpoint, char *message, size_t bytes) {
  return guarded(message, bytes, [&] { *endpoint = new shunt_endpoint(*config); });
}

shunt_status regions(shunt_endpoint *endpoint, const shunt_region **regions, uint32_t *count) {
  *regions = &endpoint->region;
  *count = 1;
  return SHUNT_OK;
}

const char *last_error(shunt_endpoint *) { return ""; } // regions cannot fail

shunt_status close_endpoint(shunt_endpoint *endpoint, char *, size_t) {
  delete endpoint;
  return SHUNT_OK;
}

const shunt_memory_kind memory_kinds[] = {SHUNT_MEMORY_HOST};

// Designated initializers would do in C++20; -Wextra warns of those that are left out.
shunt_transport_v1 table() {
  shunt_transport_v1 t{};
  t.magic = SHUNT_TRANSPORT_MAGIC;
  t.version_major = SHUNT_VERSION_MAJOR;
  t.version_minor = SHUNT_VERSION_MINOR;
  t.struct_size = sizeof t;
  t.features = SHUNT_FEATURE_MEMORY;
  t.name = "scratch";
  t.version = "1.0.0";
  t.doc = "the example in C++ of the transport author's guide";
  t.memory = memory_kinds;
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
