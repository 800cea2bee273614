// events.hpp: events of a GPU that are used again, as making and destroying one takes as long as recording it.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <mutex>
#include <vector>

namespace shunt_torch {

class Events : public std::enable_shared_from_this<Events> {
 public:
  // Gives the event back to where it came from. Streams that wait for it stay behind what it recorded.
  class Back {
   public:
    explicit Back(std::shared_ptr<Events> pool) : pool_(std::move(pool)) {}
    void operator()(c10::Event* event) const { pool_->give(std::unique_ptr<c10::Event>(event)); }

   private:
    std::shared_ptr<Events> pool_;
  };
  using Handle = std::unique_ptr<c10::Event, Back>;

  // An event to be recorded before anything else; all of those of a pool are recorded in streams of one device.
  Handle take(c10::DeviceType type) {
    std::unique_ptr<c10::Event> event;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        event = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!event) event = std::make_unique<c10::Event>(type);
    return Handle(event.release(), Back(shared_from_this()));
  }

 private:
  void give(std::unique_ptr<c10::Event> event) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(event));
  }

  static constexpr size_t kMost = 64;  // more at once are a rare burst
  std::mutex mutex_;
  std::vector<std::unique_ptr<c10::Event>> free_;
};

}  // namespace shunt_torch
