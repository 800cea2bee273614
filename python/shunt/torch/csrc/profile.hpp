// profile.hpp: what torch's profiler shows of a call, as "shunt:all_reduce".
#pragma once

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <functional>
#include <optional>
#include <vector>

namespace shunt_torch {

// What records on this thread, a profiler for instance. Asked once a call: those that sample draw lots.
inline std::optional<at::StepCallbacks> recorders() {
  return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
}

// Starts the event of a call on these tensors. collective is a literal.
void begin(at::RecordFunction& event, const char* collective, const std::vector<at::Tensor>& tensors);

// Starts the event of a call. The returned function ends it, on any thread.
std::function<void()> beginAsync(at::StepCallbacks recorders, const char* collective,
                                 const std::vector<at::Tensor>& tensors);

// The event of a call that ends on this thread, as this object does.
class Profiled {
 public:
  Profiled(const char* collective, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
    auto to = recorders();
    if (C10_LIKELY(!to.has_value())) return;
    event_.emplace(std::move(*to));
    begin(*event_, collective, inputs.empty() ? outputs : inputs);
  }

 private:
  std::optional<at::RecordFunction> event_;
};

}  // namespace shunt_torch
