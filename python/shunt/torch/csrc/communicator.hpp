// communicator.hpp: one shunt_comm, made through torch's store and closed with this object.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "errors.hpp"

namespace shunt_torch {

using Milliseconds = std::chrono::milliseconds;

// How the ranks of one communicator find each other: rank 0 puts Shunt's unique id into the store under key(), and
// takes it out again once all have joined, so that the key can serve a later group of this name.
struct Rendezvous {
  c10::intrusive_ptr<c10d::Store> store;
  std::function<std::string()> key;  // called once, by the call that joins
  int rank;
  int size;
  c10::Device device;
  std::string awaited;  // what the others wait for, in errors
  std::function<void(const Where&)> watch;  // called while it waits; throws what makes waiting pointless. May be empty.
  std::function<Milliseconds()> deadline;   // the group's, which outlasts that of the call that joins
  std::vector<int> ranks = {};  // of a communicator of two of the group's ranks: which they are in the group
};

class Communicator {
 public:
  // Collective: joins the ranks within timeout. cancel is a word that ends it on every rank once it is set; Ctrl-C does
  // so too.
  Communicator(const Rendezvous& rendezvous, Milliseconds timeout, const Where& where, std::atomic<int32_t>& cancel);
  // Closes it: waits for this rank's operations in flight, at most its deadline.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Runs one operation: to its end on host memory, into its stream on that of a GPU. After deadline it is aborted
  // on all ranks; what is in a stream has the group's.
  void run(const shunt_operation& operation, const Where& where, Milliseconds deadline);

  // Runs the send and recv operations between begin and end together.
  void run(const shunt_operation* begin, const shunt_operation* end, const Where& where, Milliseconds deadline);

  // Waits until stream is past everything in it, and throws how the communicator is then.
  void synchronize(void* stream, const Where& where, Milliseconds deadline);

  // Fails pending and later calls on every rank; any thread may call it. Returns at once.
  void abort(const std::string& reason);

  // Throws the failure that every later call would.
  void check(const Where& where) const;

  // That failure, or SHUNT_OK.
  shunt_status asyncError() const;

  shunt_comm handle() const { return comm_; }

 private:
  void keep(Milliseconds deadline);
  void settle(shunt_status status, const Where& where, Milliseconds deadline);

  const std::vector<int> ranks_;  // as Rendezvous
  const std::function<Milliseconds()> deadline_;
  const bool onDevice_;
  shunt_comm comm_ = nullptr;
  Milliseconds own_;  // the deadline that the library itself keeps
};

// Closes them at once: each may wait for seconds until the ranks that have joined it close it too.
void closeTogether(std::vector<std::unique_ptr<Communicator>> communicators);

// Runs ask, which asks torch's store something. That the store is gone, most often with the rank that ran it, becomes a
// DistBackendError.
template <class Ask>
auto inStore(const Where& where, Ask&& ask) {
  try {
    return ask();
  } catch (const c10::Error& e) {
    std::string why = e.what_without_backtrace();
    C10_THROW_ERROR(DistBackendError,
                    c10::str("shunt: ", where.str(), ": torch.distributed's store does not respond; the rank that ",
                             "runs it, mostly rank 0, may have ended: ", why.substr(0, why.find('\n'))));
  }
}

// Takes key out of the store, if it is there and the store can.
void forget(c10d::Store& store, const std::string& key);

// What cancels the making of a communicator, and what waits for it.
enum Cancel : int32_t { kNotCancelled = 0, kAborted, kDestroyed };

// Waits until the store holds key and returns its value. Throws after timeout, once cancel is set, or what watch does.
std::string await(c10d::Store& store, const std::string& key, const std::string& awaited, Milliseconds timeout,
                  const Where& where, const std::atomic<int32_t>& cancel,
                  const std::function<void(const Where&)>& watch = {});

}  // namespace shunt_torch
