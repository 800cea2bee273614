// links.hpp: send and recv on host memory.
//
// Each direction between two ranks is a link: a communicator of the two and a lane, made by the first message. So
// isend and irecv never wait for each other, whatever their order, and the other ranks of the group need not call.
// Messages of a link arrive in the order in which they were sent; tags are not looked at.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "channel.hpp"

namespace shunt_torch {

class Links {
 public:
  // watch throws once messages cannot come any more, as when the group's communicator has failed.
  Links(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const std::string* group,
        std::function<void(const Where&)> watch, std::function<Milliseconds()> deadline);
  ~Links();

  c10::intrusive_ptr<Work> send(const at::Tensor& tensor, int peer, Milliseconds timeout, uint64_t sequence);
  c10::intrusive_ptr<Work> recv(const at::Tensor& tensor, int peer, Milliseconds timeout, uint64_t sequence);

  // Receives from whichever rank sends first; its Work's sourceRank says from which.
  c10::intrusive_ptr<Work> recvAny(const at::Tensor& tensor, Milliseconds timeout, uint64_t sequence);

  void abort();
  // Calls use, which must not block, with the communicators that have been made.
  void eachMade(const std::function<void(Communicator&)>& use);
  // Ends messages to oneself whose other end has not come. Runs callbacks: call it without locks.
  void endSelf(const std::string& text);

  // Refuses further messages, as Channel::end, and returns what is to be closed before this object goes.
  std::vector<std::unique_ptr<Communicator>> end(const std::string& text, Milliseconds limit);

 private:
  // One direction. The sender raises a counter in the receiver's memory before each message, so that a receive from
  // any rank sees who sends. Between hosts, which share no memory, the counter is in the store.
  struct Link {
    explicit Link(Rendezvous rendezvous) : channel(std::move(rendezvous)) {}

    Communicator& connect(const Where& where, Milliseconds timeout);  // on the lane

    shunt_window window = nullptr;
    int64_t sent = 0;                                           // messages, of the sender
    std::atomic<int64_t> taken{0};                              // messages that receives were made for
    std::atomic<const std::atomic<int64_t>*> announced{nullptr};  // the receiver's counter, once connected
    std::atomic<bool> inStore{false};                           // the counter, once connected
    std::atomic<bool> connecting{false};
    Channel channel;  // last: its lane ends before the rest goes
  };

  // A message to oneself waits for its other end here.
  struct Waiting {
    at::Tensor tensor;
    c10::intrusive_ptr<HostWork> work;
  };

  std::shared_ptr<Link> link(int from, int to);
  std::string key(int from, int to) const;
  std::string counter(int from, int to) const;
  void announce(Link& link, Communicator& communicator, int peer);
  c10::intrusive_ptr<Work> toSelf(const at::Tensor& tensor, bool sends, Milliseconds timeout, uint64_t sequence);
  // Returns once a message to oneself waits no more; at until it fails.
  void endOverdue(const Where& where, std::deque<Waiting>& waiting, const c10::intrusive_ptr<HostWork>& work,
                  Milliseconds timeout, std::chrono::steady_clock::time_point until);
  int findSender(const Where& where, Milliseconds timeout);
  void tryConnect(int from, Milliseconds timeout);

  Where where(const char* collective) const { return {collective, rank_, group_}; }

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const std::string* group_;
  const std::function<void(const Where&)> watch_;
  const std::function<Milliseconds()> deadline_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::shared_ptr<Link>> links_;
  std::deque<Waiting> selfSends_, selfRecvs_;
  std::condition_variable met_;  // messages to oneself wait no more
  std::atomic<bool> closing_{false};
  const std::shared_ptr<Lane> any_ = std::make_shared<Lane>();   // receives from any rank
  const std::shared_ptr<Lane> self_ = std::make_shared<Lane>();  // deadlines of messages to oneself
};

}  // namespace shunt_torch
