// submit.hpp: how a call of the backend runs.
#pragma once

#include <c10/core/StreamGuard.h>

#include "backend.hpp"
#include "profile.hpp"

namespace c10d {
bool allow_inflight_collective_as_graph_input();  // of ProcessGroup.hpp: torch notes each call's Work, and uses it
}

namespace shunt_torch {

template <class Job>
WorkPtr ShuntBackend::submit(const Call& call, Channel& channel, const Tensors& outputs, const Tensors& inputs,
                             Job job) {
  uint64_t sequence = ++sequence_;
  if (channel.rendezvous().device.is_cuda()) return submitOnDevice(call, channel, outputs, inputs, job, sequence);
  Profiled event(call.where.collective, inputs, outputs);
  if (!call.async) {
    channel.call(call.where, call.timeout, [&](Communicator& communicator) { job(communicator, nullptr); });
    if (C10_LIKELY(!c10d::allow_inflight_collective_as_graph_input())) return nullptr;
    auto ended = c10::make_intrusive<HostWork>(call.where, call.type, sequence, outputs, [] {});
    HostWork::run(ended, [](bool) {});
    return ended;
  }
  auto work = c10::make_intrusive<HostWork>(call.where, call.type, sequence, outputs,
                                            [job, where = call.where, timeout = call.timeout, &channel]() mutable {
                                              job(channel.communicator(where, timeout), nullptr);
                                            });
  channel.enqueue(work, call.where);
  return noted(std::move(work));
}

template <class Job>
WorkPtr ShuntBackend::submitOnDevice(const Call& call, Channel& channel, const Tensors& outputs, const Tensors& inputs,
                                     Job& job, uint64_t sequence) {
  Profiled event(call.where.collective, inputs, outputs);
  auto device = channel.rendezvous().device;
  c10::impl::VirtualGuardImpl guard(device.type());
  c10::Stream current = guard.getStream(device);
  if (!call.async) {
    channel.call(call.where, call.timeout,
                 [&](Communicator& communicator) { job(communicator, current.native_handle()); });
    if (C10_LIKELY(!c10d::allow_inflight_collective_as_graph_input())) return nullptr;
    return c10::make_intrusive<DeviceWork>(call.where, call.type, sequence, outputs, Tensors(), current,
                                           channel.event(), false, channel.weak_from_this());
  }
  // Beside what the program computes meanwhile: the channel's own stream, behind what the tensors come from.
  c10::Stream own = channel.ownStream(guard);
  {
    auto ready = channel.event();
    ready->record(current);
    ready->block(own);
  }
  Tensors touched = outputs;
  touched.insert(touched.end(), inputs.begin(), inputs.end());
  try {
    c10::MultiStreamGuard onOwn(own);
    channel.call(call.where, call.timeout, [&](Communicator& communicator) { job(communicator, own.native_handle()); });
  } catch (...) {
    for (auto& tensor : touched) markUsed(tensor, own);  // a part of the job may be in the stream
    throw;
  }
  return noted(c10::make_intrusive<DeviceWork>(call.where, call.type, sequence, outputs, std::move(touched), own,
                                               channel.event(), call.type == OpType::BARRIER,
                                               channel.weak_from_this()));
}

}  // namespace shunt_torch
