// channel.hpp: a communicator that is made by its first call, and the order of the calls on it.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>

#include "communicator.hpp"
#include "events.hpp"
#include "lane.hpp"

namespace shunt_torch {

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  explicit Channel(Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}
  ~Channel() { end("the group was destroyed", Milliseconds(0)); }

  // Runs job(communicator) after everything queued, on this thread.
  template <class Job>
  void call(const Where& where, Milliseconds timeout, Job&& job) {
    lane_->call(where, [&] { job(communicator(where, timeout)); });
  }

  void enqueue(c10::intrusive_ptr<HostWork> work, const Where& where) { lane_->enqueue(std::move(work), where); }

  // The communicator, made now if need be: collective. Only for who has the turn: jobs.
  Communicator& communicator(const Where& where, Milliseconds timeout) {
    Communicator* made = made_.load(std::memory_order_acquire);
    return C10_LIKELY(made != nullptr) ? *made : join(where, timeout);
  }

  bool isMade() const { return made_.load(std::memory_order_acquire) != nullptr; }

  // Calls use(communicator) if it has been made and is not closed, for any thread while the channel lives. Closing
  // waits for use, which must not block.
  template <class Use>
  void ifMade(Use&& use) const {
    std::lock_guard<std::mutex> lock(closing_);
    if (auto* communicator = made_.load(std::memory_order_acquire)) use(*communicator);
  }

  const Rendezvous& rendezvous() const { return rendezvous_; }

  // GPUs: the stream of calls that run beside the program's own.
  c10::Stream ownStream(const c10::impl::VirtualGuardImpl& device);

  // GPUs: an event for a call in that stream.
  Events::Handle event() { return events_->take(rendezvous_.device.type()); }

  // Fails what runs, what is queued and later calls, on every rank: this one has aborted the group of that name.
  void abort(const std::string& group);

  // Refuses further calls with text, waits at most limit for those made and aborts what is left. Returns the
  // communicator, if there is one, for the caller to close while the channel lives. The channel keeps it if an aborted
  // call has not come back.
  std::unique_ptr<Communicator> end(const std::string& text, Milliseconds limit);

 private:
  Communicator& join(const Where& where, Milliseconds timeout);

  Rendezvous rendezvous_;
  std::atomic<int32_t> cancel_{0};
  std::unique_ptr<Communicator> communicator_;
  std::string unmade_;  // why it could not be made, if so
  std::atomic<Communicator*> made_{nullptr};
  mutable std::mutex closing_;  // held while made_ goes, and by those that use it without the turn
  std::once_flag streamChosen_;
  std::optional<c10::Stream> stream_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
  const std::shared_ptr<Lane> lane_ = std::make_shared<Lane>();
};

}  // namespace shunt_torch
