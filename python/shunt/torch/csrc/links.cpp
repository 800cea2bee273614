#include "links.hpp"

#include <algorithm>
#include <thread>

#include "arguments.hpp"

namespace shunt_torch {

namespace {

shunt_operation message(shunt_collective direction, const at::Tensor& tensor, int peer) {
  auto elements = elementsOf(tensor.scalar_type());
  shunt_operation op = SHUNT_OPERATION_INIT;
  op.collective = direction;
  op.dtype = elements.dtype;
  op.count = elements.of(tensor);
  op.root = peer;
  if (direction == SHUNT_COLL_SEND) op.send = tensor.data_ptr();
  else op.recv = tensor.data_ptr();
  return op;
}

constexpr int kSender = 0, kReceiver = 1;  // ranks of a link's communicator

}  // namespace

Links::Links(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const std::string* group,
             std::function<void(const Where&)> watch, std::function<Milliseconds()> deadline)
    : store_(std::move(store)), rank_(rank), size_(size), group_(group), watch_(std::move(watch)),
      deadline_(std::move(deadline)) {}

Links::~Links() { closeTogether(end("the group was destroyed", Milliseconds(0))); }

std::string Links::key(int from, int to) const { return c10::str("shunt/cpu/", from, "to", to); }

std::string Links::counter(int from, int to) const { return key(from, to) + "/sent"; }

void Links::announce(Link& link, Communicator& communicator, int peer) {
  link.sent++;
  if (link.inStore) {
    inStore(where("send"), [&] { return store_->add(counter(rank_, peer), 1); });
  } else {
    // It fails only with the communicator: then the message that follows does, and says so.
    (void)api().put_(communicator.handle(), link.window, &link.sent, 1, SHUNT_DTYPE_INT64, kReceiver, 0, nullptr);
  }
}

std::shared_ptr<Links::Link> Links::link(int from, int to) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& link = links_[{from, to}];
  if (link) return link;
  bool sends = from == rank_;
  auto named = [key = key(from, to)] { return key; };
  link = std::make_shared<Link>(Rendezvous{store_, named, sends ? kSender : kReceiver, 2, at::kCPU,
                                           c10::str("rank ", from, " to send"), watch_, deadline_, {from, to}});
  return link;
}

Communicator& Links::Link::connect(const Where& where, Milliseconds timeout) {
  Communicator& communicator = channel.communicator(where, timeout);
  if (window == nullptr && !inStore) {
    void* base = nullptr;
    auto status = api().window_create_(communicator.handle(), sizeof(int64_t), &window, &base);
    if (status == SHUNT_UNSUPPORTED) {  // on both ranks: they are on two hosts
      inStore = true;
    } else {
      check(status, where, channel.rendezvous().ranks);
      announced.store(static_cast<const std::atomic<int64_t>*>(base), std::memory_order_release);
    }
  }
  return communicator;
}

c10::intrusive_ptr<Work> Links::send(const at::Tensor& tensor, int peer, Milliseconds timeout, uint64_t sequence) {
  if (peer == rank_) return toSelf(tensor, true, timeout, sequence);
  auto w = where("send");
  auto l = link(rank_, peer);
  auto work = c10::make_intrusive<HostWork>(
      w, OpType::SEND, sequence, std::vector<at::Tensor>{tensor}, [this, l = l.get(), w, tensor, peer, timeout] {
        // An earlier group of this name may have left it.
        if (!l->channel.isMade()) forget(*store_, counter(rank_, peer));
        Communicator& communicator = l->connect(w, timeout);
        announce(*l, communicator, peer);
        communicator.run(message(SHUNT_COLL_SEND, tensor, kReceiver), w, timeout);
      });
  l->channel.enqueue(work, w);
  return work;
}

c10::intrusive_ptr<Work> Links::recv(const at::Tensor& tensor, int peer, Milliseconds timeout, uint64_t sequence) {
  if (peer == rank_) return toSelf(tensor, false, timeout, sequence);
  auto w = where("recv");
  auto l = link(peer, rank_);
  l->taken++;
  auto work = c10::make_intrusive<HostWork>(
      w, OpType::RECV, sequence, std::vector<at::Tensor>{tensor}, [l = l.get(), w, tensor, timeout] {
        l->connect(w, timeout).run(message(SHUNT_COLL_RECV, tensor, kSender), w, timeout);
      });
  work->setSourceRank(peer);
  l->channel.enqueue(work, w);
  return work;
}

c10::intrusive_ptr<Work> Links::toSelf(const at::Tensor& tensor, bool sends, Milliseconds timeout,
                                      uint64_t sequence) {
  Waiting mine{tensor, nullptr}, other;
  auto w = where(sends ? "send" : "recv");
  mine.work = c10::make_intrusive<HostWork>(w, sends ? OpType::SEND : OpType::RECV, sequence,
                                            std::vector<at::Tensor>{tensor}, [] {});
  mine.work->setSourceRank(rank_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", w.str(), ": the group was closed"));
    auto& others = sends ? selfRecvs_ : selfSends_;
    if (others.empty()) {
      auto& waiting = sends ? selfSends_ : selfRecvs_;
      auto overdue = c10::make_intrusive<HostWork>(
          w, OpType::UNKNOWN, 0, Tensors{},
          [this, w, &waiting, work = mine.work, timeout, until = std::chrono::steady_clock::now() + timeout] {
            endOverdue(w, waiting, work, timeout, until);
          });
      self_->enqueue(std::move(overdue), w);
      waiting.push_back(mine);
      return mine.work;
    }
    other = others.front();
    others.pop_front();
    met_.notify_all();
  }
  auto& from = sends ? tensor : other.tensor;
  auto& to = sends ? other.tensor : tensor;
  std::exception_ptr why;
  try {
    auto w = where("recv");
    SHUNT_TORCH_CHECK(from.nbytes() == to.nbytes(), w, "argument tensor has ", to.nbytes(),
                      " bytes; expected the ", from.nbytes(), " that this rank sent to itself");
    std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
  } catch (...) {
    why = std::current_exception();
  }
  for (auto& work : {other.work, mine.work})
    if (why) HostWork::fail(work, why);
    else HostWork::run(work, [](bool) {});
  return mine.work;
}

void Links::endOverdue(const Where& where, std::deque<Waiting>& waiting, const c10::intrusive_ptr<HostWork>& work,
                       Milliseconds timeout, std::chrono::steady_clock::time_point until) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    auto place = [&] {
      return std::find_if(waiting.begin(), waiting.end(), [&](auto& message) { return message.work == work; });
    };
    met_.wait_for(lock, until - std::chrono::steady_clock::now(), [&] { return place() == waiting.end(); });
    auto found = place();
    if (found == waiting.end()) return;
    waiting.erase(found);
  }
  std::string text = c10::str(where.str(), ": this rank has not called the other end of its message to itself within ",
                              static_cast<double>(timeout.count()) / 1000, " s");
  HostWork::fail(work, timeoutError(text));
}

void Links::tryConnect(int from, Milliseconds timeout) {
  auto l = link(from, rank_);
  if (l->connecting.exchange(true)) return;
  auto w = where("recv_any_source");
  l->channel.enqueue(c10::make_intrusive<HostWork>(w, OpType::RECVANYSOURCE, 0, std::vector<at::Tensor>{},
                                                   [l = l.get(), w, timeout] { l->connect(w, timeout); }), w);
}

int Links::findSender(const Where& where, Milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  auto lookAtStore = start;
  while (true) {
    for (int from = 0; from < size_; from++) {
      if (from == rank_) continue;
      auto l = link(from, rank_);
      auto* announced = l->announced.load(std::memory_order_acquire);
      int64_t sent = 0, taken = l->taken.load();
      if (announced != nullptr) sent = announced->load(std::memory_order_acquire);
      else if (l->inStore && Clock::now() >= lookAtStore)
        sent = inStore(where, [&] { return store_->add(counter(from, rank_), 0); });
      if (sent > taken && l->taken.compare_exchange_strong(taken, taken + 1)) return from;
    }
    auto now = Clock::now();
    if (now >= lookAtStore) watch_(where);
    if (closing_) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": the group was closed"));
    if (now - start > timeout)
      throwTimeout(
          c10::str(where.str(), ": no rank has sent within ", static_cast<double>(timeout.count()) / 1000, " s"));
    // Links that do not exist yet are announced in the store.
    if (now >= lookAtStore) {
      for (int from = 0; from < size_; from++)
        if (from != rank_ && link(from, rank_)->announced.load() == nullptr && !link(from, rank_)->inStore &&
            inStore(where, [&] { return store_->check({key(from, rank_)}); }))
          tryConnect(from, timeout);
      lookAtStore = now + std::clamp<Clock::duration>((now - start) / 16, Milliseconds(2), Milliseconds(100));
    }
    // The longer it has waited, the less it matters that it wakes late.
    std::this_thread::sleep_for(
        std::clamp<Clock::duration>((now - start) / 64, std::chrono::microseconds(20), Milliseconds(1)));
  }
}

c10::intrusive_ptr<Work> Links::recvAny(const at::Tensor& tensor, Milliseconds timeout, uint64_t sequence) {
  auto w = where("recv_any_source");
  // The Work is known to its job only after it was made.
  auto self = std::make_shared<HostWork*>(nullptr);
  auto work = c10::make_intrusive<HostWork>(
      w, OpType::RECVANYSOURCE, sequence, std::vector<at::Tensor>{tensor},
      [this, w, self, tensor, timeout, sequence] {
        int from = findSender(w, timeout);
        (*self)->setSourceRank(from);
        auto l = link(from, rank_);
        auto inner = c10::make_intrusive<HostWork>(
            w, OpType::RECV, sequence, std::vector<at::Tensor>{tensor}, [l = l.get(), w, tensor, timeout] {
              l->connect(w, timeout).run(message(SHUNT_COLL_RECV, tensor, kSender), w, timeout);
            });
        l->channel.enqueue(inner, w);
        inner->wait(kNoTimeout);
      });
  *self = work.get();
  any_->enqueue(work, w);
  return work;
}

void Links::abort() {
  closing_ = true;
  (void)any_->stop(c10::str("the group was aborted: rank ", rank_, " aborted its group ", *group_), Milliseconds(0));
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [_, link] : links_) link->channel.abort(*group_);
}

void Links::eachMade(const std::function<void(Communicator&)>& use) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [_, link] : links_) link->channel.ifMade(use);
}

void Links::endSelf(const std::string& text) {
  std::deque<Waiting> left;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
    left.swap(selfSends_);
    left.insert(left.end(), selfRecvs_.begin(), selfRecvs_.end());
    selfRecvs_.clear();
    met_.notify_all();
  }
  for (auto& waiting : left)
    HostWork::fail(waiting.work,
                   std::make_exception_ptr(c10::DistBackendError(
                       {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                       c10::str("shunt: ", text, " before this rank's other end of the message came"))));
}

std::vector<std::unique_ptr<Communicator>> Links::end(const std::string& text, Milliseconds limit) {
  auto until = std::chrono::steady_clock::now() + limit;
  (void)any_->stop(text, limit);
  endSelf(text);
  (void)self_->stop(text, limit);
  std::map<std::pair<int, int>, std::shared_ptr<Link>> links;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    links = links_;
  }
  std::vector<std::unique_ptr<Communicator>> ended;
  for (auto& [_, link] : links) {
    auto left = std::chrono::duration_cast<Milliseconds>(until - std::chrono::steady_clock::now());
    ended.push_back(link->channel.end(text, std::max(left, Milliseconds(0))));
  }
  any_->join();
  self_->join();
  return ended;
}

}  // namespace shunt_torch
