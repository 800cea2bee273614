#include "channel.hpp"

namespace shunt_torch {

Communicator& Channel::join(const Where& where, Milliseconds timeout) {
  // A rank that has waited in vain does not know which of the others' calls its next one would meet.
  if (!unmade_.empty())
    C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": the group failed before: ", unmade_));
  try {
    communicator_ = std::make_unique<Communicator>(rendezvous_, timeout, where, cancel_);
  } catch (const c10::Error& e) {
    unmade_ = std::string(e.what_without_backtrace()).substr(std::string("shunt: ").size());
    throw;
  } catch (...) {
    unmade_ = c10::str(where.str(), " was interrupted while the ranks met");
    throw;
  }
  made_.store(communicator_.get(), std::memory_order_release);
  return *communicator_;
}

c10::Stream Channel::ownStream(const c10::impl::VirtualGuardImpl& device) {
  std::call_once(streamChosen_,
                 [&] { stream_ = device.getStreamFromGlobalPool(rendezvous_.device, /*isHighPriority=*/true); });
  return *stream_;
}

void Channel::abort(const std::string& group) {
  cancel_ = kAborted;
  std::string reason = c10::str("rank ", rendezvous_.rank, " aborted its group ", group);
  (void)lane_->stop("the group was aborted: " + renumbered(reason, rendezvous_.ranks), Milliseconds(0));
  ifMade([&](Communicator& communicator) { communicator.abort(reason); });
}

std::unique_ptr<Communicator> Channel::end(const std::string& text, Milliseconds limit) {
  if (!lane_->stop(text, limit)) {
    cancel_ = kDestroyed;
    ifMade([&](Communicator& communicator) { communicator.abort(text); });
  }
  lane_->join();
  // A call that was aborted above still uses the communicator until it gives the turn back: one of another thread, or
  // the one whose signal handler this is.
  if (!lane_->stop(text, std::chrono::seconds(5))) return nullptr;
  std::lock_guard<std::mutex> lock(closing_);
  made_ = nullptr;  // abort reaches it through cancel_ from now on
  return std::move(communicator_);
}

}  // namespace shunt_torch
