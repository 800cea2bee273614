// api.hpp: the C API of libshunt, found at run time in the copy of the library that the Python package has loaded.
#pragma once

#include <string>

#include "shunt.h"

namespace shunt_torch {

// One pointer for each function that the backend calls, named as in shunt.h without the prefix.
struct Api {
#define SHUNT_TORCH_FUNCTIONS(X)                                                                              \
  X(last_error) X(get_unique_id) X(comm_init) X(abort) X(close) X(get_async_error) X(run) X(synchronize)      \
  X(group_start) X(group_end) X(group_cancel) X(set_block_limit) X(set_timeout) X(continue) X(cancel)         \
  X(window_create) X(window_at) X(window_free) X(put) X(status_string)                                        \
  X(register_symmetric) X(deregister) X(peer_address) X(note_refusal)
#define SHUNT_TORCH_POINTER(name) decltype(&::shunt_##name) name##_ = nullptr;
  SHUNT_TORCH_FUNCTIONS(SHUNT_TORCH_POINTER)
#undef SHUNT_TORCH_POINTER
};

// Finds the functions in the library at path. Throws std::runtime_error if one is missing.
void load(const std::string& path);

// The loaded library.
const Api& api();

// What the part for all versions of CPython was built from: python/wheel_check.py reads it in the file.
const char* builtFrom();

}  // namespace shunt_torch
