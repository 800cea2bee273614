// messages.cpp: send and recv of the backend, alone and in batches; barriers.
#include <algorithm>
#include <thread>

#include "python.hpp"
#include "submit.hpp"

namespace shunt_torch {

namespace {

shunt_operation message(shunt_collective direction, const at::Tensor& tensor, int peer, void* stream) {
  auto elements = elementsOf(tensor.scalar_type());
  shunt_operation op = SHUNT_OPERATION_INIT;
  op.collective = direction;
  op.dtype = elements.dtype;
  op.count = elements.of(tensor);
  op.root = peer;
  op.stream = stream;
  if (direction == SHUNT_COLL_SEND) op.send = tensor.data_ptr();
  else op.recv = tensor.data_ptr();
  return op;
}

// The other end may hold its elements in another order. channels_last is a format that programs use on both ends, and
// that nccl takes too.
void checkOrder(const at::Tensor& tensor, const Where& where) {
  if (!tensor.is_contiguous(tensor.suggest_memory_format())) checkContiguous(tensor, "tensor", where);
}

}  // namespace

Links& ShuntBackend::links(const Where& where) {
  if (!closed_.empty()) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", closed_));
  if (!links_) {
    links_ = std::make_unique<Links>(connection_, rank_, size_, &title_,
                                     [this](const Where& waiting) { checkMembers(waiting); }, deadline());
  }
  return *links_;
}

WorkPtr ShuntBackend::send(Tensors& tensors, int peer, int) { return sendOrRecv(SHUNT_COLL_SEND, tensors, peer); }

WorkPtr ShuntBackend::recv(Tensors& tensors, int peer, int) { return sendOrRecv(SHUNT_COLL_RECV, tensors, peer); }

// torch leaves a group as it is while it coalesces, where later calls do nothing, when a call throws before
// endCoalescing. So a batch throws there.
WorkPtr ShuntBackend::sendOrRecv(shunt_collective direction, Tensors& tensors, int peer) {
  Where w = where(direction == SHUNT_COLL_SEND ? "send" : "recv");
  try {
    return sendOrRecvNow(direction, tensors, peer, w);
  } catch (...) {
    if (!coalescing()) throw;
    if (!rejected_) rejected_ = std::current_exception();
    return c10::make_intrusive<JointWork>(rank_, OpType::COALESCED, std::vector<WorkPtr>{});
  }
}

WorkPtr ShuntBackend::sendOrRecvNow(shunt_collective direction, Tensors& tensors, int peer, const Where& w) {
  bool sends = direction == SHUNT_COLL_SEND;
  auto type = sends ? OpType::SEND : OpType::RECV;
  at::Tensor& tensor = only(tensors, "tensor", w);
  checkOrder(tensor, w);
  checkRank(peer, size_, sends ? "dst" : "src", w);
  if (tensor.is_cpu()) {
    Links* links;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      links = &this->links(w);
    }
    Profiled event(w.collective, {}, tensors);
    uint64_t sequence = ++messages_;
    auto limit = timeout(c10d::kUnsetTimeout);
    auto work = sends ? links->send(tensor, peer, limit, sequence) : links->recv(tensor, peer, limit, sequence);
    return noted(std::move(work));
  }
  TORCH_CHECK_VALUE(tensor.is_cuda(), "shunt: ", w.str(), ": argument tensor is on ", tensor.device(),
                    "; expected cpu or cuda");
  if (coalescing()) {
    queued_.push_back({direction, tensor, peer});
    return c10::make_intrusive<JointWork>(rank_, type, std::vector<WorkPtr>{});
  }
  SHUNT_TORCH_CHECK(peer != rank_, w, "a message to oneself on a GPU needs its send and recv in one batch_isend_irecv");
  // As nccl's: the group's communicator if it has been made at once for a device, else one of the two ranks.
  Channel* chosen;
  bool whole = bound_device_id_.has_value() && channel(tensor.device(), w).isMade();
  if (whole) {
    chosen = &channel(tensor.device(), w);
  } else {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_.empty()) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", w.str(), ": ", closed_));
    auto& pair = pairs_[{peer, tensor.device().index()}];
    int low = std::min(rank_, peer), high = std::max(rank_, peer);
    if (!pair) pair = makeChannel(c10::str(low, "and", high), rank_ == low ? 0 : 1, 2, tensor.device(), {low, high});
    chosen = pair.get();
  }
  int there = whole ? peer : rank_ < peer ? 1 : 0;
  Call call{w, type, timeout(c10d::kUnsetTimeout), true};
  auto job = [call, tensor, direction, there](Communicator& communicator, void* stream) {
    communicator.run(message(direction, tensor, there, stream), call.where, call.timeout);
  };
  return submitOnDevice(call, *chosen, {tensor}, {}, job, ++messages_);
}

WorkPtr ShuntBackend::recvAnysource(Tensors& tensors, int) {
  Where w = where("recv_any_source");
  at::Tensor& tensor = only(tensors, "tensor", w);
  checkOrder(tensor, w);
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_cpu(), "shunt: ", w.str(), ": argument tensor is on ", tensor.device(),
                              "; receiving from any rank is for tensors on cpu: name src");
  Profiled event(w.collective, {}, tensors);
  std::lock_guard<std::mutex> lock(mutex_);
  return links(w).recvAny(tensor, timeout(c10d::kUnsetTimeout), ++messages_);
}

void ShuntBackend::startCoalescing() {
  coalescing_ = std::this_thread::get_id();
  coalesced_.clear();
  queued_.clear();
  rejected_ = nullptr;
}

WorkPtr ShuntBackend::endCoalescing() {
  coalescing_ = std::thread::id();
  auto works = std::move(coalesced_);
  coalesced_.clear();
  auto queued = std::move(queued_);
  queued_.clear();
  if (rejected_) std::rethrow_exception(std::exchange(rejected_, nullptr));
  if (!queued.empty()) {
    Call call{where("batch_isend_irecv"), OpType::COALESCED, timeout(c10d::kUnsetTimeout), true};
    Tensors tensors;
    for (auto& q : queued) {
      SHUNT_TORCH_CHECK(q.tensor.device() == queued[0].tensor.device(), call.where, "tensors are on ",
                        q.tensor.device(), " and ", queued[0].tensor.device(), "; expected one device");
      tensors.push_back(q.tensor);
    }
    auto job = [call, queued](Communicator& communicator, void* stream) {
      std::vector<shunt_operation> operations;
      for (auto& q : queued) operations.push_back(message(q.direction, q.tensor, q.peer, stream));
      communicator.run(operations.data(), operations.data() + operations.size(), call.where, call.timeout);
    };
    // It notes nothing: coalescing has ended.
    works.push_back(submitOnDevice(call, channel(queued[0].tensor.device(), call.where), tensors, {}, job,
                                   ++messages_));
  }
  if (works.empty()) return nullptr;
  if (works.size() == 1) return works[0];
  return c10::make_intrusive<JointWork>(rank_, OpType::COALESCED, std::move(works));
}

WorkPtr ShuntBackend::barrier(const c10d::BarrierOptions& opts) {
  Call call{where("barrier"), OpType::BARRIER, timeout(opts.timeout), opts.asyncOp};
  at::Device device = at::kCPU;
  if (opts.device.has_value()) device = *opts.device;
  else if (!opts.device_ids.empty() && at::hasCUDA())  // torch passes them on without GPUs too
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]));
  if (device.is_cuda() && !device.has_index())
    device = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  // torch names the CPU for every group that serves it too. A barrier of one that was called on a GPU waits for what is
  // in the stream there, as nccl's does, and is in order with those calls.
  if (device.is_cpu() && opts.device_ids.empty() && gpu_ >= 0)
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu_.load()));
  bool waits = device.is_cuda() && !opts.asyncOp;
  std::vector<c10::Stream> behind;  // as nccl's, also where the group was called on GPUs for messages alone
  if (device.is_cpu()) behind = streamsOfMessages();
  return submit(call, channel(device, call.where), {}, {},
                [call, waits, behind](Communicator& communicator, void* stream) {
    for (auto& each : behind) each.synchronize();
    shunt_operation op = SHUNT_OPERATION_INIT;
    op.collective = SHUNT_COLL_BARRIER;
    op.stream = stream;
    communicator.run(op, call.where, call.timeout);
    if (waits) communicator.synchronize(stream, call.where, call.timeout);
  });
}

std::vector<c10::Stream> ShuntBackend::streamsOfMessages() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<c10::Stream> streams;
  if (pairs_.empty()) return streams;
  c10::impl::VirtualGuardImpl guard(at::kCUDA);
  for (auto& [_, channel] : pairs_) {
    auto stream = guard.getStream(channel->rendezvous().device);
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  }
  return streams;
}

void ShuntBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool waitAllRanks) {
  StayIfPythonEnds back;
  Where w = where("monitored_barrier");
  auto limit =
      opts.timeout.count() == 0 ? opts.timeout : timeout(opts.timeout);  // 0 is a limit here: who is not there yet?
  auto number = monitored_++;
  std::string prefix = c10::str("shunt/monitored/", number, "/");
  if (rank_ != 0) {
    inStore(w, [&] { connection_->set(prefix + std::to_string(rank_), std::string("here")); });
    // Rank 0 tells after its own deadline, in words that gloo's users look for.
    std::string told =
        await(*connection_, prefix + "end", "rank 0 to end the barrier", limit + Milliseconds(2000), w, aborted_);
    // A later group of this name counts from 0 again and must find nothing: the last to read takes the end away.
    try {
      forget(*connection_, prefix + std::to_string(rank_));
      if (connection_->add(prefix + "read", 1) >= size_ - 1) {
        forget(*connection_, prefix + "end");
        forget(*connection_, prefix + "read");
      }
    } catch (const std::exception&) {
      // Rank 0 has ended, and the store with it.
    }
    if (!told.empty())
      C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", w.str(), ": Rank ", rank_,
                                                 " successfully reached monitoredBarrier, but received errors while "
                                                 "waiting for send/recv from rank 0: ",
                                                 told));
    return;
  }
  auto start = std::chrono::steady_clock::now();
  std::vector<int> missing;
  for (int rank = 1; rank < size_; rank++) {
    auto left = limit - std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start);
    bool came = true;
    try {
      (void)await(*connection_, prefix + std::to_string(rank), c10::str("rank ", rank, " to come"),
                  std::max(left, Milliseconds(0)), w, aborted_);
    } catch (const c10::DistBackendError&) {
      if (aborted_) throw;
      came = false;
    }
    if (came) continue;
    missing.push_back(rank);
    if (!waitAllRanks) break;
  }
  std::string text;
  if (!missing.empty())
    text = c10::str(missing.size() > 1 ? "Ranks " : "Rank ", c10::Join(", ", missing),
                    " failed to pass monitoredBarrier in ", limit.count(), " ms");
  if (size_ > 1) inStore(w, [&] { connection_->set(prefix + "end", text); });
  if (!text.empty()) throwTimeout(c10::str(w.str(), ": Rank 0 timed out in monitoredBarrier: ", text));
}

}  // namespace shunt_torch
