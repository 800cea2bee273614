#include "work.hpp"

#include <pthread.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

#include "channel.hpp"
#include "errors.hpp"
#include "python.hpp"

namespace shunt_torch {

namespace {

c10::intrusive_ptr<c10::ivalue::Future> tensorsFuture(std::vector<c10::Device> devices = {}) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

void settle(c10::ivalue::Future& future, const std::exception_ptr& why, c10::IValue value) {
  if (why) future.setError(why);
  else future.markCompleted(std::move(value));
}

// What Python's end waits for: futures of calls on host memory that are to be completed, and calls that end.
struct Open {
  std::mutex mutex;
  std::condition_variable fewer;
  int count = 0;
  bool awaited = false;  // nothing waits any more

  void add(int n) {
    std::lock_guard<std::mutex> lock(mutex);
    if ((count += n) == 0) fewer.notify_all();
  }
};

// Lanes' threads outlive the program's static objects. A forked child, which has none of them, has an Open of its own.
Open& open() {
  static Open* own = new Open;
  static const int forks = pthread_atfork(nullptr, nullptr, [] { own = new Open; });
  (void)forks;
  return *own;
}

// While one lives a call ends: its tensors are freed and callbacks run, either of which may take the GIL.
class Ending {
 public:
  Ending() {
    std::lock_guard<std::mutex> lock(open_.mutex);
    open_.count++;
    leaks_ = open_.awaited;
  }
  ~Ending() { open_.add(-1); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  bool leaks() const { return leaks_; }  // Python may end at any time: tensors are kept for ever

 private:
  Open& open_ = open();
  bool leaks_;
};

[[noreturn]] void throwNotEnded(const Where& where, std::chrono::milliseconds timeout) {
  throwTimeout(c10::str(where.str(), ": not ended within ", timeout.count(), " ms"));
}

constexpr std::chrono::microseconds kLongestPause(200);  // between two looks at an event

int64_t resultOf(const std::exception_ptr& why) {
  return static_cast<int64_t>(why ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS);
}

}  // namespace

bool awaitEnds(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(open().mutex);
  bool all = open().fewer.wait_for(lock, limit, [] { return open().count == 0; });
  open().awaited = true;
  return all;
}

HostWork::HostWork(const Where& where, OpType type, uint64_t sequence, Tensors outputs, std::function<void()> job)
    : Work(where.rank, type),
      collective_(where.collective),
      group_(*where.group),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      job_(std::move(job)) {}

bool HostWork::run(c10::intrusive_ptr<HostWork> work, const std::function<void(bool)>& after) {
  std::exception_ptr why;
  try {
    c10::InferenceMode inference(work->inference_);
    at::AutoDispatchBelowAutograd noGradients;
    work->job_();
  } catch (...) {
    why = std::current_exception();
  }
  return end(std::move(work), std::move(why), after);
}

void HostWork::fail(c10::intrusive_ptr<HostWork> work, std::exception_ptr why) {
  (void)end(std::move(work), std::move(why), [](bool) {});
}

bool HostWork::end(c10::intrusive_ptr<HostWork> work, std::exception_ptr why, const std::function<void(bool)>& after) {
  int futures;
  {
    std::lock_guard<std::mutex> lock(work->mutex_);
    work->ended_ = true;
    work->exception_ = std::move(why);
    futures = (work->future_ ? 1 : 0) + (work->futureResult_ ? 1 : 0);
  }
  after(futures > 0);
  Ending ending;
  stayIfPythonEnds();
  if (ending.leaks()) new auto(work);
  else work->job_ = nullptr;
  if (work->future_) settle(*work->future_, work->exception_, c10::IValue(work->outputs_));
  else work->settleResult();
  open().add(-futures);
  work.reset();
  return futures > 0;
}

void HostWork::settleResult() {
  if (futureResult_) futureResult_->markCompleted(c10::IValue(resultOf(exception_)));
  else finish(exception_);
}

bool HostWork::wait(std::chrono::milliseconds timeout) {
  StayIfPythonEnds back;  // behind the lock
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  timeout = std::min(timeout, kLongest);
  bool main = onMainThread();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!completed_) {
    cv_.wait_for(lock, std::chrono::milliseconds(100), [this] { return completed_; });
    if (completed_) break;
    if (timeout > kNoTimeout && Clock::now() - start > timeout) throwNotEnded({collective_, rank_, &group_}, timeout);
    if (main) {
      lock.unlock();
      if (signalRaised()) throwPythonError();
      lock.lock();
    }
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

// What end completes was asked for before; a future that is asked for later is complete from the start, and not kept:
// end may be on its way. Who has waited finds futures complete, and callbacks may wait for the call: so it is the first
// callback of a future that goes on with the end.
c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (future_) return future_;
  auto future = tensorsFuture();
  if (ended_) {
    settle(*future, exception_, c10::IValue(outputs_));
  } else {
    future->addCallback([this](auto&) { settleResult(); }, false);
    open().add(1);
    future_ = future;
  }
  return future;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFutureResult() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (futureResult_) return futureResult_;
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  if (ended_) {
    future->markCompleted(c10::IValue(resultOf(exception_)));
  } else {
    future->addCallback([this](auto&) { finish(exception_); }, false);
    open().add(1);
    futureResult_ = future;
  }
  return future;
}

DeviceWork::DeviceWork(const Where& where, OpType type, uint64_t sequence, Tensors outputs, Tensors touched,
                       c10::Stream stream, Events::Handle ended, bool hostWaits, std::weak_ptr<Channel> channel)
    : Work(where.rank, type),
      collective_(where.collective),
      group_(*where.group),
      sequence_(sequence),
      hostWaits_(hostWaits),
      channel_(std::move(channel)),
      outputs_(std::move(outputs)),
      touched_(std::move(touched)),
      stream_(stream),
      ended_(std::move(ended)) {
  ended_->record(stream_);
}

// The future notes the stream that is current now: who waits for it gets behind the call, and behind those that
// followed before the future was asked for.
c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!future_) {
    auto future = tensorsFuture({stream_.device()});
    c10::MultiStreamGuard guard(stream_);
    future->markCompleted(c10::IValue(value()));
    future_ = std::move(future);
  }
  return future_;
}

// As nccl's, whose all_gather of equal tensors has one with all of them in it: hooks of DDP count on that.
std::vector<at::Tensor> DeviceWork::value() {
  bool alike = !outputs_.empty() && retrieveOpType() == OpType::ALLGATHER;
  for (auto& tensor : outputs_) alike = alike && !tensor.is_sparse() && tensor.sizes() == outputs_[0].sizes();
  if (!alike) return outputs_;
  at::NoGradGuard noGradients;
  for (auto& tensor : outputs_) markUsed(tensor, stream_);
  return {at::stack(outputs_)};
}

void markUsed(const at::Tensor& tensor, const c10::Stream& stream) {
  if (tensor.is_sparse()) { // its memory is that of two others
    markUsed(tensor._indices(), stream);
    markUsed(tensor._values(), stream);
    return;
  }
  c10::impl::VirtualGuardImpl device(stream.device_type());
  device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

DeviceWork::~DeviceWork() {
  try {
    for (auto& tensor : touched_) markUsed(tensor, stream_);
  } catch (const std::exception& e) {
    TORCH_WARN("shunt: cannot mark tensors as used in their stream: ", e.what());
  }
}

bool DeviceWork::isCompleted() { return ended_->query(); }

void DeviceWork::synchronize() {
  c10::impl::VirtualGuardImpl device(stream_.device_type());
  c10::Stream waiting = device.getStream(stream_.device());
  ended_->block(waiting);
  for (auto& tensor : outputs_)
    if (tensor.is_sparse()) markUsed(tensor, waiting); // the call made its memory, in the call's stream
  Tensors touched;
  std::lock_guard<std::mutex> lock(mutex_);
  touched.swap(touched_); // two threads may wait; freed when the lock is gone
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  StayIfPythonEnds back;
  synchronize();
  if (timeout != kNoTimeout && !streamIsCaptured()) awaitEnd(timeout);  // what is captured has not begun
  else if (hostWaits_) ended_->synchronize();
  else return true;
  if (auto channel = channel_.lock())
    channel->ifMade([this](Communicator& communicator) { communicator.check(where()); });
  return true;
}

void DeviceWork::awaitEnd(std::chrono::milliseconds timeout) {
  bool main = onMainThread();
  auto now = std::chrono::steady_clock::now(), until = now + std::min(timeout, kLongest), signals = now;
  for (std::chrono::microseconds pause(1); !ended_->query(); pause = std::min(2 * pause, kLongestPause)) {
    std::this_thread::sleep_for(pause);
    now = std::chrono::steady_clock::now();
    if (now > until) throwNotEnded(where(), timeout);
    if (!main || now < signals) continue;
    if (signalRaised()) throwPythonError();
    signals = now + std::chrono::milliseconds(100);
  }
}

JointWork::JointWork(int rank, OpType type, std::vector<c10::intrusive_ptr<Work>> parts)
    : Work(rank, type), parts_(std::move(parts)) {}

bool JointWork::isCompleted() {
  for (auto& part : parts_)
    if (!part->isCompleted()) return false;
  return true;
}

bool JointWork::isSuccess() const {
  for (auto& part : parts_)
    if (!part->isSuccess()) return false;
  return true;
}

std::exception_ptr JointWork::exception() const {
  for (auto& part : parts_)
    if (auto why = part->exception()) return why;
  return nullptr;
}

bool JointWork::wait(std::chrono::milliseconds timeout) {
  // Others may write into their tensors until they have ended too.
  std::exception_ptr first;
  for (auto& part : parts_) {
    try {
      part->wait(timeout);
    } catch (...) {
      if (!part->isCompleted()) throw;  // the wait has failed
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  return true;
}

void JointWork::synchronize() {
  for (auto& part : parts_) part->synchronize();
}

void JointWork::blockCurrentStream() {
  for (auto& part : parts_) part->blockCurrentStream();
}

std::vector<at::Tensor> JointWork::result() {
  Tensors all;
  for (auto& part : parts_)
    for (auto& tensor : part->result()) all.push_back(tensor);
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> JointWork::getFuture() {
  auto type = c10::ListType::create(c10::TensorType::get());
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(type));
  for (auto& part : parts_) futures.push_back(part->getFuture());
  return c10::collectAll(futures)->then(
      [](c10::ivalue::Future& ended) {
        c10::List<at::Tensor> all;
        for (const c10::IValue& part : ended.value().toListRef())
          for (auto& tensor : part.toFuture()->value().toTensorVector()) all.push_back(tensor);
        return c10::IValue(all);
      },
      type);
}

c10::intrusive_ptr<c10::ivalue::Future> JointWork::getFutureResult() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(c10::IntType::get()));
  for (auto& part : parts_) futures.push_back(part->getFutureResult());
  return c10::collectAll(futures)->then(
      [](c10::ivalue::Future& ended) {
        int64_t worst = 0;  // success
        for (const c10::IValue& part : ended.value().toListRef())
          worst = std::max(worst, part.toFuture()->value().toInt());
        return c10::IValue(worst);
      },
      c10::IntType::get());
}

}  // namespace shunt_torch
