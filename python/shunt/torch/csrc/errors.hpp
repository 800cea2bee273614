// errors.hpp: what goes wrong, as exceptions that torch hands to Python.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "api.hpp"

namespace shunt_torch {

// Names a call in error texts.
class ShuntBackend;
struct Where {
  const char* collective;
  int rank;
  const std::string* group;  // its title, see titleOf
  ShuntBackend* backend = nullptr;

  std::string str() const;  // "all_reduce on rank 1 of group 0"
  // "group 0", or "ranks 2, 1 of group 0": what log lines call a communicator of these of its ranks, empty for all.
  std::string label(const std::vector<int>& ranks) const;
  // Has the ranks that wait for this call know why it was not made.
  void refused(const std::string& why) const;
};

// A bad argument: a ValueError (TypeError) of Python that begins with the call.
#define SHUNT_TORCH_CHECK(condition, where, ...) SHUNT_TORCH_REFUSE(TORCH_CHECK_VALUE, condition, where, __VA_ARGS__)
#define SHUNT_TORCH_CHECK_TYPE(condition, where, ...) \
  SHUNT_TORCH_REFUSE(TORCH_CHECK_TYPE, condition, where, __VA_ARGS__)
#define SHUNT_TORCH_REFUSE(raise, condition, where, ...)       \
  do {                                                         \
    if (C10_UNLIKELY(!(condition))) {                          \
      std::string why_ = c10::str(__VA_ARGS__);                \
      (where).refused(why_);                                   \
      raise(false, (where).str(), ": ", why_);                 \
    }                                                          \
  } while (false)

// Throws for a status that is not OK, with the text that the library left for this thread: ValueError where an
// argument is wrong, NotImplementedError where no transport can do it, torch.distributed.DistBackendError otherwise.
// ranks as of renumbered.
[[noreturn]] void throwStatus(shunt_status status, const Where& where, const std::vector<int>& ranks = {});

// The text of a communicator of few of a group's ranks, with the numbers that these have in the group: ranks[i] for
// i. As it is where ranks is empty.
std::string renumbered(const std::string& text, const std::vector<int>& ranks);

// The text of a failed communicator in torch.distributed's words, and with the way out there: groups do not shrink.
std::string advised(std::string text);

// A DistBackendError that says "timeout", by which programs tell it from others.
[[noreturn]] void throwTimeout(const std::string& text);
std::exception_ptr timeoutError(const std::string& text);

inline void check(shunt_status status, const Where& where, const std::vector<int>& ranks = {}) {
  if (C10_UNLIKELY(status != SHUNT_OK)) throwStatus(status, where, ranks);
}

}  // namespace shunt_torch
