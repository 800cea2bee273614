#include "communicator.hpp"

#include <future>
#include <thread>

#include "python.hpp"

namespace shunt_torch {

namespace {

using Clock = std::chrono::steady_clock;

// Calls on host memory come back this often, so that signal handlers run and deadlines are kept.
constexpr int64_t kBlockLimitMs = 100;

std::string seconds(Milliseconds t) { return c10::str(static_cast<double>(t.count()) / 1000, " s"); }

// A wait for ranks that have not come is logged after this time, which is longer than most ranks differ in their start.
constexpr Milliseconds kPatience{10000};

// What rank 0 puts into the store in place of an id when it has none.
constexpr char kFailed = '!';

std::string exchange(const Rendezvous& r, const std::string& key, Milliseconds timeout, const Where& where,
                     const std::atomic<int32_t>& cancel) {
  if (r.rank != 0) {
    std::string id = await(*r.store, key, r.awaited, timeout, where, cancel, r.watch);
    if (!id.empty() && id[0] == kFailed)
      C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ",
                                                 renumbered("rank 0 could not start: " + id.substr(1), r.ranks)));
    return id;
  }
  char id[SHUNT_UNIQUE_ID_BYTES];
  shunt_status status = api().get_unique_id_(id, sizeof id);
  std::string text = status == SHUNT_OK ? std::string(id) : kFailed + std::string(api().last_error_(nullptr));
  inStore(where, [&] {
    r.store->set(key, text);
    (void)r.store->check({key}); // set waits for no answer, and seems to reach a store that is gone
  });
  shunt_torch::check(status, where, r.ranks);
  return id;
}

struct Joined {
  shunt_status status;
  shunt_comm comm;
  std::string text;
};

}  // namespace

void forget(c10d::Store& store, const std::string& key) {
  try {
    store.deleteKey(key);
  } catch (const std::exception&) {
    // A store that cannot forget keeps it.
  }
}

std::string await(c10d::Store& store, const std::string& key, const std::string& awaited, Milliseconds timeout,
                  const Where& where, const std::atomic<int32_t>& cancel,
                  const std::function<void(const Where&)>& watch) {
  auto start = Clock::now();
  auto pause = std::chrono::microseconds(200);
  auto patience = kPatience;
  while (!inStore(where, [&] { return store.check({key}); })) {
    if (auto why = cancel.load())
      C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": the group was ",
                                                 why == kDestroyed ? "destroyed" : "aborted"));
    if (watch) watch(where);
    if (onMainThread() && signalRaised()) throwPythonError();
    if (Clock::now() - start > timeout)
      throwTimeout(c10::str(where.str(), ": waited ", seconds(timeout), " for ", awaited));
    if (Clock::now() - start > patience) {
      TORCH_WARN("shunt: ", where.str(), ": has waited ", seconds(patience), " for ", awaited);
      patience *= 4;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20000));
  }
  auto value = inStore(where, [&] { return store.get(key); });
  return std::string(value.begin(), value.end());
}

Communicator::Communicator(const Rendezvous& r, Milliseconds timeout, const Where& where, std::atomic<int32_t>& cancel)
    : ranks_(r.ranks), deadline_(r.deadline), onDevice_(r.device.is_cuda()), own_(std::max(timeout, r.deadline())) {
  auto start = Clock::now();
  std::string id, key = r.key();
  if (r.size > 1) id = exchange(r, key, timeout, where, cancel);
  else {
    id.resize(SHUNT_UNIQUE_ID_BYTES);
    shunt_torch::check(api().get_unique_id_(id.data(), id.size()), where);
  }
  shunt_options options = SHUNT_OPTIONS_INIT;
  options.rank = r.rank;
  options.world = r.size;
  options.id = id.c_str();
  options.timeout_ms = own_.count();
  options.cancel = reinterpret_cast<const int32_t*>(&cancel);
  std::string label = where.label(ranks_);
  options.label = label.c_str();
  if (onDevice_) {
    options.memory = SHUNT_MEMORY_CUDA;
    options.device = r.device.index();
  }
  // A thread of its own joins, as the library's call sees no signal handlers of Python.
  auto joining = std::async(std::launch::async, [this, &options] {
    Joined j{SHUNT_OK, nullptr, ""};
    j.status = api().comm_init_(&options, &j.comm);
    if (j.status != SHUNT_OK) j.text = renumbered(api().last_error_(nullptr), ranks_);
    return j;
  });
  bool interrupted = false, late = false;
  std::exception_ptr pointless;
  // Until, not for: libstdc++ waits on a steady clock only from GCC 11 on, and the wheel runs with older ones.
  while (joining.wait_until(std::chrono::system_clock::now() + Milliseconds(kBlockLimitMs)) !=
         std::future_status::ready) {
    if (interrupted || late || pointless) continue;
    try {
      if (r.watch) r.watch(where);
    } catch (...) {
      pointless = std::current_exception();
    }
    interrupted = onMainThread() && signalRaised();
    late = timeout < own_ && Clock::now() - start > timeout;
    if (interrupted || late || pointless) cancel = 1;
  }
  Joined joined = joining.get();
  if (r.size > 1 && r.rank == 0) forget(*r.store, key);
  comm_ = joined.comm;
  if (interrupted || late) {
    // No destructor runs now, and the library must not read cancel after its owner has gone.
    if (comm_ != nullptr) (void)api().close_(comm_);
    if (interrupted) throwPythonError();
    throwTimeout(c10::str(where.str(), ": the ranks have not all joined within ", seconds(timeout)));
  }
  if (joined.status != SHUNT_OK && pointless) std::rethrow_exception(pointless);
  if (joined.status == SHUNT_TIMEOUT) throwTimeout(c10::str(where.str(), ": ", joined.text));
  if (joined.status != SHUNT_OK)
    C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", joined.text));
  shunt_torch::check(api().set_block_limit_(comm_, kBlockLimitMs), where);
}

Communicator::~Communicator() {
  if (comm_ != nullptr) (void)api().close_(comm_);
}

void closeTogether(std::vector<std::unique_ptr<Communicator>> communicators) {
  std::vector<std::future<void>> closing;
  for (auto& communicator : communicators) {
    if (communicator == nullptr) continue;
    auto close = [own = std::move(communicator)]() mutable { own.reset(); };
    try {
      closing.push_back(std::async(std::launch::async, std::move(close)));
    } catch (const std::system_error&) {  // no further thread: what close has of it goes here
    }
  }
}

// Has the library keep a deadline: its errors name the rank that was waited for. On a GPU it bounds all that is
// enqueued, so that there it is the group's.
void Communicator::keep(Milliseconds deadline) {
  if (onDevice_) deadline = deadline_();
  if (C10_LIKELY(deadline == own_)) return;
  if (api().set_timeout_(comm_, deadline.count()) == SHUNT_OK) own_ = deadline;
}

void Communicator::run(const shunt_operation& operation, const Where& where, Milliseconds deadline) {
  keep(deadline);
  shunt_status status = api().run_(comm_, &operation);
  if (C10_UNLIKELY(status != SHUNT_OK)) settle(status, where, deadline);
}

void Communicator::run(const shunt_operation* begin, const shunt_operation* end, const Where& where,
                       Milliseconds deadline) {
  keep(deadline);
  shunt_torch::check(api().group_start_(comm_), where);
  for (auto* operation = begin; operation != end; operation++) {
    shunt_status status = api().run_(comm_, operation);
    if (status != SHUNT_OK) {
      // The text of the failure is this thread's until its next call.
      std::string text = renumbered(api().last_error_(nullptr), ranks_);
      (void)api().group_cancel_(comm_);
      TORCH_CHECK_VALUE(false, "shunt: ", where.str(), ": ", text);
    }
  }
  settle(api().group_end_(comm_), where, deadline);
}

void Communicator::synchronize(void* stream, const Where& where, Milliseconds deadline) {
  keep(deadline);
  settle(api().synchronize_(comm_, stream), where, deadline);
}

void Communicator::settle(shunt_status status, const Where& where, Milliseconds deadline) {
  // On a GPU, where the library keeps the group's.
  bool shorter = deadline.count() > 0 && deadline < own_;
  auto start = Clock::now();
  while (status == SHUNT_PENDING) {
    if (onMainThread() && signalRaised()) {
      (void)api().cancel_(comm_, "interrupted by a signal");
      throwPythonError();
    }
    if (shorter && Clock::now() - start > deadline) {
      std::string text = c10::str("not ended within ", seconds(deadline));
      (void)api().cancel_(comm_, text.c_str());
      throwTimeout(c10::str(where.str(), ": ", text));
    }
    status = api().continue_(comm_);
  }
  shunt_torch::check(status, where, ranks_);
}

void Communicator::abort(const std::string& reason) { (void)api().abort_(comm_, reason.c_str()); }

void Communicator::check(const Where& where) const {
  shunt_status error = asyncError();
  if (error != SHUNT_OK)
    C10_THROW_ERROR(DistBackendError, c10::str("shunt: ", where.str(), ": ", advised(api().last_error_(comm_))));
}

shunt_status Communicator::asyncError() const {
  shunt_status error = SHUNT_OK;
  shunt_status asked = api().get_async_error_(comm_, &error);
  return asked == SHUNT_OK ? error : asked;
}

}  // namespace shunt_torch
