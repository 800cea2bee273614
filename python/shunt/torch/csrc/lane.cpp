#include "lane.hpp"

namespace shunt_torch {

void Lane::refuseStopped(const Where& where) const {
  if (!stopped_.empty()) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", stopped_));
}

void Lane::refuseForked(const Where& where) const {
  if (getpid() != process_)
    C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": called in a forked child, which has none of ",
                                               "its parent's threads; start processes by spawn instead"));
}

void Lane::take(const Where& where) {
  std::unique_lock<std::mutex> lock(mutex_);
  refuseStopped(where);
  TORCH_CHECK(holder_ != std::this_thread::get_id(), "shunt: ", where.str(),
              ": called by a signal handler while this thread runs a call of the same group, for which it would wait");
  if (!queue_.empty()) serve();
  if (busy_ || !queue_.empty()) refuseForked(where);
  while (busy_ || !queue_.empty()) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (onMainThread()) {
      lock.unlock();
      if (signalRaised()) throwPythonError();
      lock.lock();
    }
    refuseStopped(where);
  }
  busy_ = true;
  holder_ = std::this_thread::get_id();
}

void Lane::release(bool leaves) {
  std::lock_guard<std::mutex> lock(mutex_);
  busy_ = false;
  holder_ = {};
  if (leaves) serving_--;
  try {
    if (!queue_.empty()) serve();
  } catch (const std::system_error&) {  // no further thread: this one serves the queue when it is back
  }
  if (queue_.empty()) changed_.notify_all();
  else queued_.notify_one();
}

void Lane::enqueue(c10::intrusive_ptr<HostWork> work, const Where& where) {
  refuseForked(where);
  std::lock_guard<std::mutex> lock(mutex_);
  refuseStopped(where);
  serve();
  queue_.push_back(std::move(work));
  if (!busy_) queued_.notify_one();
}

void Lane::serve() {
  if (serving_ > 0) return;
  threads_.emplace_back([lane = shared_from_this()] { lane->loop(); });
  serving_++;
}

void Lane::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    // At the end it does not wait for who has the turn: that may be a call which nothing ends before join.
    queued_.wait(lock, [this] { return queue_.empty() ? !stopped_.empty() : !busy_; });
    if (queue_.empty()) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    // The lane is free before anyone learns of the end.
    bool left = HostWork::run(std::move(work), [this](bool callbacks) { release(callbacks); });
    lock.lock();
    if (left) serving_++;
  }
}

bool Lane::stop(const std::string& text, std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopped_.empty()) stopped_ = text;
  changed_.notify_all();
  queued_.notify_all();
  if (holder_ == std::this_thread::get_id()) return false;  // the call goes on when its signal handler returns
  return changed_.wait_for(lock, limit, [this] { return !busy_ && queue_.empty(); });
}

void Lane::join() {
  while (true) {
    std::deque<c10::intrusive_ptr<HostWork>> left;
    std::vector<std::thread> threads;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      left.swap(queue_);
      threads.swap(threads_);
      changed_.notify_all();
      queued_.notify_all();
    }
    for (auto& work : left)
      HostWork::fail(work, std::make_exception_ptr(c10::DistBackendError(
          {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "shunt: " + stopped_ + " before the call ran")));
    // The last thing that a thread does may have been to start another.
    if (threads.empty()) return;
    for (auto& thread : threads)
      if (thread.get_id() == std::this_thread::get_id() || pythonEnds()) thread.detach();
      else thread.join();
  }
}

}  // namespace shunt_torch
