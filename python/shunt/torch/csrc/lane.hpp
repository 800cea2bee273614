// lane.hpp: calls on host memory that must run one after the other, as they were made.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "errors.hpp"
#include "python.hpp"
#include "work.hpp"

namespace shunt_torch {

// A queue with a thread, which starts with the first queued call. A blocking call that finds the queue empty runs
// on its caller's thread, without a hand-over. Callbacks of a call's future run on the thread that ran the call and may
// wait for other calls, or make some: another thread runs those. Threads own the lane, as a callback may destroy the
// group; who makes a lane ends them, by stop and join.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Runs job after everything queued, on this thread.
  template <class Job>
  void call(const Where& where, Job&& job) {
    Turn turn(*this, where);
    job();
  }

  // Queues work and returns.
  void enqueue(c10::intrusive_ptr<HostWork> work, const Where& where);

  // Refuses further calls with text, and waits at most limit for those made. Returns whether all have ended: false at
  // once in a signal handler that interrupts one.
  bool stop(const std::string& text, std::chrono::milliseconds limit);

  // Waits for the threads' end, after stop; calls that never ended are aborted by then.
  void join();

 private:
  // The right to run on the lane, from construction to destruction.
  class Turn {
   public:
    Turn(Lane& lane, const Where& where) : lane_(lane) { lane_.take(where); }
    ~Turn() {
      lane_.release();
      stayIfPythonEnds();
    }

   private:
    Lane& lane_;
  };

  void take(const Where& where);
  void release(bool leaves = false);  // leaves: this thread serves the queue and runs callbacks now
  void serve();                       // makes a thread, unless one serves the queue; with mutex_
  void loop();
  void refuseStopped(const Where& where) const;
  void refuseForked(const Where& where) const;

  std::mutex mutex_;
  std::condition_variable changed_;  // for callers: the lane is free, or stopped
  std::condition_variable queued_;   // for threads: there is a call to run, or the end
  std::deque<c10::intrusive_ptr<HostWork>> queue_;
  bool busy_ = false;
  std::thread::id holder_;  // which runs a call of its own. Signal handlers run on it meanwhile
  const pid_t process_ = getpid();  // the one that has the threads
  std::string stopped_;  // why calls are refused, if they are
  std::vector<std::thread> threads_;
  int serving_ = 0;  // threads that wait for a call or run one: those of callbacks may wait for anything
};

}  // namespace shunt_torch
