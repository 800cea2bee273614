#include "backend.hpp"

#include <algorithm>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "python.hpp"
#include "submit.hpp"

namespace shunt_torch {

namespace {

// How long destroying a group waits for its calls in flight.
constexpr Milliseconds kShutdownLimit{10000};
constexpr Milliseconds kMessageLimit{2000};
constexpr Milliseconds kDestructorLimit{100};

void checkTimeout(std::chrono::milliseconds timeout, int rank) {
  TORCH_CHECK_VALUE(timeout.count() > 0, "shunt: rank ", rank, ": argument timeout is ", timeout.count(),
                    " ms; expected 1 or more");
}

// PrefixStore shows its prefix to classes derived from it alone.
struct Prefix : c10d::PrefixStore {
  static const std::string& of(const c10d::PrefixStore& store) { return store.*(&Prefix::prefix_); }
};

// A store's connection, and the one that groups have to the same place, while both are in use.
struct Connection {
  c10::weak_intrusive_ptr<c10d::Store> theirs, ours;
  pid_t process;  // a child's calls must not mingle with its parent's
};

c10::intrusive_ptr<c10d::Store> connectionTo(const c10::intrusive_ptr<c10d::Store>& store) {
  static std::mutex mutex;
  static std::vector<Connection> connections;
  std::lock_guard<std::mutex> lock(mutex);
  for (auto& c : connections)
    if (c.process == getpid() && c.theirs.lock() == store)
      if (auto ours = c.ours.lock()) return ours;
  connections.erase(std::remove_if(connections.begin(), connections.end(),
                                   [](auto& c) { return c.theirs.expired() || c.ours.expired(); }),
                    connections.end());
  auto ours = store->clone();
  connections.push_back({c10::weak_intrusive_ptr<c10d::Store>(store), c10::weak_intrusive_ptr<c10d::Store>(ours),
                         getpid()});
  return ours;
}

// "2 (ranks 4, 5 of the job)", or "0" where these are the group's own numbers.
std::string titleOf(const ShuntBackend::Options& options) {
  constexpr size_t kNamed = 16;
  auto& ranks = options.global_ranks_in_group;
  size_t same = 0;
  while (same < ranks.size() && ranks[same] == same) same++;
  if (same == ranks.size()) return options.group_name;
  c10::ArrayRef<uint64_t> named(ranks.data(), std::min(ranks.size(), kNamed));
  return c10::str(options.group_name, " (ranks ", c10::Join(", ", named), named.size() < ranks.size() ? ", ..." : "",
                  " of the job)");
}

// A connection to the store for groups alone: their calls must not wait for the program's, which share one. All groups
// of a process share it, as no call of theirs waits long, and the store's process may take seconds to accept many. To
// be made while the store is there: torch tries for longer than a deadline to reach one that is gone.
c10::intrusive_ptr<c10d::Store> ownConnection(const c10::intrusive_ptr<c10d::Store>& store) {
  try {
    auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
    if (prefixed == nullptr) return connectionTo(store);
    return c10::make_intrusive<c10d::PrefixStore>(Prefix::of(*prefixed), ownConnection(prefixed->getUnderlyingStore()));
  } catch (const std::exception&) {
    return store;  // a store of the program's own that cannot be cloned
  }
}

}  // namespace

ShuntBackend::ShuntBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                           c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(std::move(store)),
      connection_(ownConnection(store_)),
      options_(std::move(options)),
      title_(titleOf(*options_)),
      timeout_(options_->timeout.count()),
      process_(getpid()) {
  checkTimeout(options_->timeout, rank);
  init();
}

ShuntBackend::~ShuntBackend() {
  if (getpid() != process_) {
    // What belongs to the parent stays as it is: nothing here could end it.
    new auto(std::move(channels_));
    new auto(std::move(pairs_));
    (void)links_.release();
    return;
  }
  // Lanes may need the GIL to end, for callbacks of futures; a destructor may run with it.
  WithoutGil released;
  closeChannels("the group was destroyed", kDestructorLimit);
}

void ShuntBackend::setTimeout(std::chrono::milliseconds timeout) {
  checkTimeout(timeout, rank_);
  options_->timeout = timeout;
  timeout_ = timeout.count();
}

std::shared_ptr<Channel> ShuntBackend::makeChannel(const std::string& name, int rank, int size,
                                                    const at::Device& device, std::vector<int> ranks) {
  auto key = c10::str("shunt/", device.is_cuda() ? "cuda" : "cpu", "/", name);
  return std::make_shared<Channel>(Rendezvous{
      connection_, [this, key] { return numbered(key); }, rank, size, device,
      renumbered("rank 0 to join", ranks), [this](const Where& waiting) { checkMembers(waiting); }, deadline(),
      ranks});
}

std::string ShuntBackend::numbered(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  return c10::str(key, "/", meetings_[key]++);
}

void ShuntBackend::checkMembers(const Where& waiting) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_.empty()) return;  // communicators may be going, and callers that wait get the error in another way
  for (auto& [_, channel] : channels_)
    channel->ifMade([&](Communicator& communicator) { communicator.check(waiting); });
}

Channel& ShuntBackend::channel(const at::Device& device, const Where& where) {
  if (device.is_cpu())
    if (auto* host = host_.load(std::memory_order_acquire)) return *host;
  TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda(), "shunt: ", where.str(), ": no transport for tensors on ",
                    device, "; expected cpu or cuda");
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_.empty()) C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", closed_));
  auto& channel = channels_[device];
  if (!channel) channel = makeChannel("all", rank_, size_, device);
  if (device.is_cpu()) host_ = channel.get();
  else if (gpu_ < 0) gpu_ = device.index();
  return *channel;
}

c10::intrusive_ptr<c10d::Backend> ShuntBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Backend::Options>& opts) {
  auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<Options>();
  options->timeout = opts->timeout;
  options->group_name = opts->group_name;
  for (int rank : ranks)
    options->global_ranks_in_group.push_back(
        options_->global_ranks_in_group.empty() ? rank : options_->global_ranks_in_group.at(rank));
  return c10::make_intrusive<ShuntBackend>(store, static_cast<int>(found - ranks.begin()),
                                           static_cast<int>(ranks.size()), std::move(options));
}

void ShuntBackend::eagerConnectSingleDevice(at::Device device) {
  auto w = where("connect");
  channel(device, w).call(w, timeout(c10d::kUnsetTimeout), [](Communicator&) {});
}

uint64_t ShuntBackend::communicatorHandle(const at::Device& device) {
  uint64_t handle = 0;
  auto w = where("communicator");
  channel(device, w).call(w, timeout(c10d::kUnsetTimeout), [&](Communicator& communicator) {
    handle = reinterpret_cast<uintptr_t>(communicator.handle());
  });
  return handle;
}

void ShuntBackend::eachMade(const std::function<void(Communicator&)>& use) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [_, channel] : channels_) channel->ifMade(use);
  for (auto& [_, channel] : pairs_) channel->ifMade(use);
  if (links_) links_->eachMade(use);
}

c10d::ErrorType ShuntBackend::getError() {
  shunt_status error = SHUNT_OK;
  eachMade([&](Communicator& communicator) {
    if (error == SHUNT_OK) error = communicator.asyncError();
  });
  switch (error) {
    case SHUNT_OK: return c10d::ErrorType::SUCCESS;
    case SHUNT_TIMEOUT: return c10d::ErrorType::TIMEOUT;
    case SHUNT_PEER_DIED:
    case SHUNT_ABORTED: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

void Where::refused(const std::string& why) const {
  if (backend != nullptr) backend->noteRefusal(collective, why);
}

void ShuntBackend::noteRefusal(const char* collective, const std::string& why) {
  eachMade([&](Communicator& communicator) {
    (void)api().note_refusal_(communicator.handle(), collective, why.c_str());
  });
}

void ShuntBackend::abort() {
  aborted_ = kAborted;
  Links* links;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = "the group was aborted";
    for (auto& [_, channel] : channels_) channel->abort(title_);
    for (auto& [_, channel] : pairs_) channel->abort(title_);
    links = links_.get();
    if (links != nullptr) links->abort();
  }
  if (links != nullptr) links->endSelf("the group was aborted");
}

void ShuntBackend::shutdown() {
  if (getpid() != process_) return;
  StayIfPythonEnds back;  // torch has let go of the GIL already
  WithoutGil released;
  closeChannels("the group was destroyed", std::min(kShutdownLimit, timeout(c10d::kUnsetTimeout)));
}

void ShuntBackend::closeChannels(const std::string& text, Milliseconds limit) {
  std::vector<std::shared_ptr<Channel>> channels;
  Links* links;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_.empty()) closed_ = text;
    for (auto& [_, channel] : channels_) channels.push_back(channel);
    for (auto& [_, channel] : pairs_) channels.push_back(channel);
    links = links_.get();
  }
  // What no peer has replied to by now is a message that this rank does not wait for.
  std::vector<std::unique_ptr<Communicator>> ended;
  if (links != nullptr) ended = links->end(text, std::min(limit, kMessageLimit));
  for (auto& channel : channels) ended.push_back(channel->end(text, limit));
  closeTogether(std::move(ended));
}

}  // namespace shunt_torch
