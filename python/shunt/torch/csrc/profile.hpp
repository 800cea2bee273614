// profile.hpp: what torch's profiler shows of a call, as "shunt:all_reduce".
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <optional>
#include <vector>

namespace shunt_torch {

// Starts the event of a call on these tensors. collective is a literal.
void begin(at::RecordFunction& event, const char* collective, const std::vector<at::Tensor>& tensors);

// The event of a call, for as long as the program is in it. One that ended later, on the thread that has run the call,
// would be written to when the profiler that has it may be gone: torch 2.11's has then freed it.
class Profiled {
 public:
  Profiled(const char* collective, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
    auto to = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);  // once: those that sample draw lots
    if (C10_LIKELY(!to.has_value())) return;
    event_.emplace(std::move(*to));
    begin(*event_, collective, inputs.empty() ? outputs : inputs);
  }

 private:
  std::optional<at::RecordFunction> event_;
};

}  // namespace shunt_torch
