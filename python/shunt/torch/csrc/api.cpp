#include "api.hpp"

#include <dlfcn.h>

#include <stdexcept>

#include <torch/version.h>

namespace shunt_torch {

namespace {
Api loaded;
}

void load(const std::string& path) {
  // The library never leaves the process (it holds a Go runtime), so the handle is not kept.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("shunt.torch cannot load libshunt: " + std::string(dlerror()));
  Api found;
#define SHUNT_TORCH_FIND(name)                                                                                \
  found.name##_ = reinterpret_cast<decltype(found.name##_)>(dlsym(library, "shunt_" #name));                  \
  if (found.name##_ == nullptr) throw std::runtime_error(path + " lacks shunt_" #name ": it is older than shunt.torch");
  SHUNT_TORCH_FUNCTIONS(SHUNT_TORCH_FIND)
#undef SHUNT_TORCH_FIND
  loaded = found;
}

const Api& api() { return loaded; }

const char* builtFrom() { return "shunt.torch " SHUNT_TORCH_SOURCES " for torch " TORCH_VERSION; }

}  // namespace shunt_torch
