#include "lane.hpp"

#include "python.hpp"

namespace shunt_torch {

Lane::~Lane() {
  (void)stop("the group was destroyed", std::chrono::milliseconds(0));
  join();
}

void Lane::refuseStopped(const Where& where) const {
  if (!stopped_.empty()) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", stopped_));
}

void Lane::take(const Where& where) {
  std::unique_lock<std::mutex> lock(mutex_);
  refuseStopped(where);
  // A callback of a future runs on the lane's thread and may call: what is queued goes first.
  if (thread_.get_id() == std::this_thread::get_id())
    while (!busy_ && !queue_.empty()) runNext(lock);
  while (busy_ || !queue_.empty()) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    refuseStopped(where);
    if (!onMainThread()) continue;
    lock.unlock();
    if (signalRaised()) throwPythonError();
    lock.lock();
  }
  busy_ = true;
}

void Lane::release() {
  std::lock_guard<std::mutex> lock(mutex_);
  busy_ = false;
  changed_.notify_all();
}

void Lane::enqueue(c10::intrusive_ptr<HostWork> work, const Where& where) {
  std::lock_guard<std::mutex> lock(mutex_);
  refuseStopped(where);
  queue_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

void Lane::runNext(std::unique_lock<std::mutex>& lock) {
  auto work = std::move(queue_.front());
  queue_.pop_front();
  busy_ = true;
  lock.unlock();
  // The lane is free before anyone learns of the end, since a callback may call again.
  work->run([this] { release(); });
  work.reset();
  lock.lock();
}

void Lane::loop() {
  at::AutoDispatchBelowAutograd noGradients;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !busy_ && (!queue_.empty() || !stopped_.empty()); });
    if (queue_.empty()) return;
    runNext(lock);
  }
}

bool Lane::stop(const std::string& text, std::chrono::milliseconds patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_.empty()) stopped_ = text;
  changed_.notify_all();
  return changed_.wait_for(lock, patience, [this] { return !busy_ && queue_.empty(); });
}

void Lane::join() {
  std::deque<c10::intrusive_ptr<HostWork>> left;
  std::thread thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    left.swap(queue_);
    thread.swap(thread_);
    changed_.notify_all();
  }
  for (auto& work : left)
    work->fail(std::make_exception_ptr(c10::DistBackendError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "shunt: " + stopped_ + " before the call ran")));
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) thread.detach();
  else thread.join();
}

}  // namespace shunt_torch
