// backend.hpp: the backend "shunt" of torch.distributed.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <map>
#include <unordered_map>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "arguments.hpp"
#include "channel.hpp"
#include "links.hpp"

namespace shunt_torch {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;
using WorkPtr = c10::intrusive_ptr<Work>;

// One group. Each device has a communicator of its own, made by the first collective on it. What goes wrong is thrown:
// ValueError and TypeError name the argument, DistBackendError carries Shunt's text.
//
// Calls with asyncOp false return null once the result is there (host memory), or once the operation is in the
// current stream (GPUs: no event, no stream of its own). Others return a Work.
class ShuntBackend : public c10d::Backend {
 public:
  struct Options : Backend::Options {
    Options() : Backend::Options("shunt") {}
  };

  // store: torch's, with the prefix of the group and device. Does not meet the other ranks.
  ShuntBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ShuntBackend() override;

  const std::string getBackendName() const override { return "shunt"; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& outputSplits,
                        std::vector<int64_t>& inputSplits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) override;

  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  // all_to_all of rows whose numbers are in device memory: int64 tensors of size entries. outputRows and inputRows
  // are what the tensors have room for. Enqueued on the current stream; wrong counts fail the group later.
  void alltoallOnDevice(at::Tensor& output, at::Tensor& input, const at::Tensor& outputSplits,
                        const at::Tensor& inputSplits);

  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& opts) override;
  void eagerConnectSingleDevice(at::Device device) override;
  // The shunt_comm of a device, as a number: for the group's life. Made now if need be, which is collective.
  uint64_t communicatorHandle(const at::Device& device);
  // Calls job(communicator) with that of a device, made now if need be, after everything queued.
  template <class Job>
  void withCommunicator(const at::Device& device, const Where& where, Job&& job) {
    channel(device, where).call(where, timeout(c10d::kUnsetTimeout), job);
  }
  // The ranks of the group in the job.
  const std::vector<uint64_t>& ranksOfWorld() const { return options_->global_ranks_in_group; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Tells the other ranks that this one has not made a call.
  void noteRefusal(const char* collective, const std::string& why);

 private:
  Where where(const char* collective) { return {collective, rank_, &title_, this}; }
  Milliseconds timeout(std::chrono::milliseconds asked) const {
    auto own = Milliseconds(timeout_.load(std::memory_order_relaxed));
    return std::min(asked > Milliseconds(0) ? asked : own, kLongest);
  }

  // The group's deadline of the moment.
  std::function<Milliseconds()> deadline() const {
    return [this] { return timeout(c10d::kUnsetTimeout); };
  }

  // Calls use, which must not block, with every communicator of the group that has been made: that of all ranks, and
  // those of messages between two.
  void eachMade(const std::function<void(Communicator&)>& use);
  // The group's channel for tensors on device.
  Channel& channel(const at::Device& device, const Where& where);
  // Throws what has failed a communicator of the whole group, a rank's death for instance: nothing can be joined then.
  void checkMembers(const Where& waiting);
  // ranks: which of the group's these are, where they are not all.
  std::shared_ptr<Channel> makeChannel(const std::string& name, int rank, int size, const at::Device& device,
                                       std::vector<int> ranks = {});

  // The store's key for the next communicator of these ranks, with how many there were: a rank that is ahead must not
  // find what the others have met by on the GPU before. Indices of GPUs differ between ranks; the order of first calls
  // does not.
  std::string numbered(const std::string& key);

  // One call: who makes it, what torch calls it, and how long it may take.
  struct Call {
    Where where;
    OpType type;
    Milliseconds timeout;
    bool async;
  };

  // Runs job(communicator, stream) on channel: at once, or queued (host memory) or in a stream of its own (GPUs) if
  // call.async. outputs are the results of the Work; inputs are what the job reads besides.
  template <class Job>
  WorkPtr submit(const Call& call, Channel& channel, const Tensors& outputs, const Tensors& inputs, Job job);
  template <class Job>
  WorkPtr submitOnDevice(const Call& call, Channel& channel, const Tensors& outputs, const Tensors& inputs, Job& job,
                         uint64_t sequence);

  // Whether this thread is between startCoalescing and endCoalescing: callbacks of others' futures may call meanwhile.
  bool coalescing() const { return coalescing_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

  // Ends coalescing where a call throws: torch calls endCoalescing no more then.
  struct EndsCoalescing {
    ShuntBackend& backend;
    const int thrown = std::uncaught_exceptions();
    ~EndsCoalescing() {
      if (std::uncaught_exceptions() > thrown && backend.coalescing()) backend.coalescing_ = std::thread::id();
    }
  };

  // Between startCoalescing and endCoalescing a Work is also part of what the latter returns.
  WorkPtr noted(WorkPtr work) {
    if (C10_UNLIKELY(coalescing())) coalesced_.push_back(work);
    return work;
  }

  Links& links(const Where& where);  // with mutex_
  WorkPtr sendOrRecv(shunt_collective direction, Tensors& tensors, int peer);
  WorkPtr sendOrRecvNow(shunt_collective direction, Tensors& tensors, int peer, const Where& where);
  void closeChannels(const std::string& text, Milliseconds limit);
  // The current streams of the GPUs that messages were sent from or received on.
  std::vector<c10::Stream> streamsOfMessages();

  c10::intrusive_ptr<c10d::Store> store_, connection_;
  c10::intrusive_ptr<Options> options_;
  const std::string title_;       // the group's name and, of a part of the job, its ranks there
  std::atomic<int64_t> timeout_;  // the deadline of the moment
  const pid_t process_;           // a forked child has none of the threads
  std::atomic<uint64_t> sequence_{0};  // collectives so far, the same on all ranks: torch compares it
  std::atomic<uint64_t> messages_{0};  // messages, and batches of them
  uint64_t monitored_ = 0;  // monitored barriers so far
  std::atomic<int32_t> aborted_{0};

  std::mutex mutex_;  // guards what follows
  std::unordered_map<at::Device, std::shared_ptr<Channel>> channels_;
  std::atomic<Channel*> host_{nullptr};  // that of host memory, for calls that must be quick
  std::atomic<int> gpu_{-1};             // the GPU that the group was called on first
  std::map<std::pair<int, c10::DeviceIndex>, std::shared_ptr<Channel>> pairs_;  // GPUs: by peer and GPU
  std::map<std::string, int> meetings_;  // communicators so far, by key
  std::unique_ptr<Links> links_;                                         // host memory
  std::string closed_;                                                   // why calls are refused, if they are

  std::atomic<std::thread::id> coalescing_{};  // between startCoalescing and endCoalescing, and what it has made:
  std::vector<WorkPtr> coalesced_;
  std::exception_ptr rejected_;  // what was wrong with a message
  struct Queued {
    shunt_collective direction;
    at::Tensor tensor;
    int peer;
  };
  std::vector<Queued> queued_;
};

}  // namespace shunt_torch
