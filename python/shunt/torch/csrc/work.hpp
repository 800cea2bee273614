// work.hpp: handles of calls that continue after they have returned.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "errors.hpp"
#include "events.hpp"

namespace shunt_torch {

using c10d::OpType;
using c10d::Work;
using Tensors = std::vector<at::Tensor>;

// Longer deadlines, as of programs that want none, are this one: it is added to times without overflow.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 3650);

// For the interpreter's end, which ends threads that take the GIL, as C++ does not survive: waits until no call on host
// memory has a future to complete or frees tensors, and returns whether that came within the limit. Calls that end
// later free none.
bool awaitEnds(std::chrono::milliseconds limit);

// A call on host memory, run by a lane. Its job keeps the tensors alive until it has run.
class HostWork : public Work {
 public:
  HostWork(const Where& where, OpType type, uint64_t sequence, Tensors outputs, std::function<void()> job);

  // Runs the job, once. after is called when the job has ended and no caller was notified yet, with whether there may
  // be callbacks, which run here then; returns that too.
  static bool run(c10::intrusive_ptr<HostWork> work, const std::function<void(bool)>& after);

  // Ends it without running it.
  static void fail(c10::intrusive_ptr<HostWork> work, std::exception_ptr why);

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  int sourceRank() const override { return source_; }
  void setSourceRank(int rank) { source_ = rank; }

 private:
  static bool end(c10::intrusive_ptr<HostWork> work, std::exception_ptr why, const std::function<void(bool)>& after);
  void settleResult();  // completes the second future, then lets waiters go

  const char* const collective_;
  const std::string group_;  // a copy, as a Work may outlive its group
  const uint64_t sequence_;
  int source_ = -1;
  Tensors outputs_;
  std::function<void()> job_;
  const bool inference_ = c10::InferenceMode::is_enabled();  // of the caller, whose tensors they are
  // Guarded by mutex_, as exception_ is; the same from ended_ on.
  bool ended_ = false;
  c10::intrusive_ptr<c10::ivalue::Future> future_, futureResult_;  // made when asked for
};

class Channel;

// What a stream still uses of a tensor is not given to another one when the tensor is freed.
void markUsed(const at::Tensor& tensor, const c10::Stream& stream);

// A call on memory of a GPU, which runs in a stream of its own. The tensors that it touches are kept until wait has
// put the caller's stream behind it, or else marked as used in that stream, for the caching allocator. No event of a
// captured call is queried but by is_completed.
class DeviceWork : public Work {
 public:
  // stream: where the call was put, already; ended: recorded here; hostWaits: wait blocks the host as well, as a
  // barrier's does. With a timeout each does, as nccl's, unless it is captured. A wait that blocks the host throws what
  // has failed the channel's communicator by then.
  DeviceWork(const Where& where, OpType type, uint64_t sequence, Tensors outputs, Tensors touched, c10::Stream stream,
             Events::Handle ended, bool hostWaits, std::weak_ptr<Channel> channel);
  ~DeviceWork() override;

  bool isCompleted() override;
  bool isSuccess() const override { return true; }
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  Where where() const { return {collective_, rank_, &group_}; }
  void awaitEnd(std::chrono::milliseconds timeout);
  Tensors value();

  const char* const collective_;
  const std::string group_;  // a copy, as a Work may outlive its group
  const uint64_t sequence_;
  const bool hostWaits_;
  const std::weak_ptr<Channel> channel_;
  Tensors outputs_;
  Tensors touched_;  // guarded by mutex_
  c10::Stream stream_;
  const Events::Handle ended_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by mutex_, made when asked for
};

// Several calls as one.
class JointWork : public Work {
 public:
  JointWork(int rank, OpType type, std::vector<c10::intrusive_ptr<Work>> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void blockCurrentStream() override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  std::vector<c10::intrusive_ptr<Work>> parts_;
};

}  // namespace shunt_torch
