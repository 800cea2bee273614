#include "symmetric.hpp"

#include <dlfcn.h>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <map>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <utility>

#include "backend.hpp"
#include "python.hpp"

namespace shunt_torch {

namespace {

namespace symm = c10d::symmetric_memory;

// put_signal and wait_signal have so many channels, each with a window of Shunt's behind the memory of the tensors.
constexpr int kChannels = 16;
constexpr size_t kWindowBytes = 4096;  // up to 32 ranks; see shunt_window_at
constexpr size_t kAlignment = 4096;

size_t rounded(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// The memory is the driver's own: torch calls alloc from within its caching allocator, which cannot be asked there.
struct Driver {
  int (*alloc)(void** memory, size_t bytes);
  int (*release)(void* memory);

  static const Driver& get() {
    static const Driver driver = [] {
      void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
      TORCH_CHECK(library != nullptr, "shunt: symmetric memory needs NVIDIA's driver: ", dlerror());
      Driver found{reinterpret_cast<decltype(Driver::alloc)>(dlsym(library, "cuMemAlloc_v2")),
                   reinterpret_cast<decltype(Driver::release)>(dlsym(library, "cuMemFree_v2"))};
      TORCH_CHECK(found.alloc != nullptr && found.release != nullptr,
                  "shunt: libcuda.so.1 lacks cuMemAlloc_v2 or cuMemFree_v2");
      return found;
    }();
    return driver;
  }
};

at::TensorOptions on(const at::Device& device, at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(device);
}

c10::Stream currentStream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Memory of one GPU: size bytes for tensors, torch's signal pad, and the channels' windows.
class Block : public c10::intrusive_ptr_target {
 public:
  Block(size_t size, at::Device device, std::optional<std::string> group)
      : size(size), pad(rounded(size)), windows(pad + rounded(symm::get_signal_pad_size())),
        bytes(windows + kChannels * kWindowBytes), device(device), group(std::move(group)) {
    // Not the current stream, where collectives may wait: this may hold the GIL, or a lock of torch's allocator.
    c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    c10::StreamGuard guard(stream);
    (void)stream.query();  // the thread has the device's context now, which the driver's calls need
    int code = Driver::get().alloc(&base, bytes);
    TORCH_CHECK(code == 0, "shunt: symmetric memory of ", bytes, " bytes on ", device, ": cuMemAlloc returned ", code);
    at::from_blob(place(pad), {static_cast<int64_t>(bytes - pad)}, on(device, at::kByte)).zero_();
    stream.synchronize();
  }

  ~Block() override {
    if (symm::is_finalizing()) return;  // CUDA may be gone
    WithoutGil released;
    try {
      c10::DeviceGuard guard(device);
      (void)Driver::get().release(base);
    } catch (const std::exception&) {
      // CUDA has failed, and its memory ends with the process.
    }
  }

  void* place(size_t offset) const { return static_cast<char*>(base) + offset; }

  const size_t size, pad, windows, bytes;
  const at::Device device;
  const std::optional<std::string> group;
  void* base = nullptr;
};

// A block that the ranks of one group have mapped.
class Shared : public c10::intrusive_ptr_target {
 public:
  // Collective.
  Shared(c10::intrusive_ptr<Block> block, c10::intrusive_ptr<ShuntBackend> backend, std::string group)
      : block_(std::move(block)), backend_(std::move(backend)), group_(std::move(group)), rank_(backend_->getRank()) {
    auto w = where("rendezvous");
    int world = backend_->getSize();
    SHUNT_TORCH_CHECK(world <= 32, w, "symmetric memory serves up to 32 ranks, and the group has ", world);
    std::vector<int64_t> addresses;
    const auto& known = backend_->ranksOfWorld();
    for (int r = 0; r < world; r++) ranks_.push_back(known.empty() ? r : static_cast<int>(known.at(r)));
    backend_->withCommunicator(block_->device, w, [&](Communicator& communicator) {
      check(api().register_symmetric_(communicator.handle(), block_->base, static_cast<int64_t>(block_->bytes)), w);
      for (int peer = 0; peer < world; peer++) {
        void* address = nullptr;  // found, as the memory is registered
        check(api().peer_address_(communicator.handle(), block_->base, peer, &address), w);
        buffers_.push_back(address);
        pads_.push_back(static_cast<char*>(address) + block_->pad);
      }
    });
    // What kernels read: the addresses of the buffers, those of the pads, then the ranks as 32-bit numbers.
    for (auto* list : {&buffers_, &pads_})
      for (void* address : *list) addresses.push_back(reinterpret_cast<int64_t>(address));
    onDevice_ = at::tensor(addresses, on(block_->device, at::kLong));
    ranksOnDevice_ = at::tensor(std::vector<int64_t>(ranks_.begin(), ranks_.end()), on(block_->device, at::kInt));
    currentStream(block_->device).synchronize();
  }

  ~Shared() override {
    if (symm::is_finalizing()) return;
    WithoutGil released;
    auto w = where("free");
    try {
      backend_->withCommunicator(block_->device, w, [&](Communicator& communicator) {
        for (auto& [_, window] : windows_) (void)api().window_free_(window);
        (void)api().deregister_(communicator.handle(), block_->base);
      });
    } catch (const std::exception&) {
      // The group is gone, and its mappings with it.
    }
  }

  // Puts an operation into the current stream; with a channel, on its window.
  void run(const char* name, shunt_operation operation, int channel, size_t timeoutMs) {
    auto w = where(name);
    WithoutGil released;
    bool windowed = operation.collective != SHUNT_COLL_BARRIER;
    SHUNT_TORCH_CHECK(channel >= 0 && (channel < kChannels || !windowed), w, "channel is ", channel, "; expected 0 ",
                      windowed ? c10::str("to ", kChannels - 1) : "or more");
    SHUNT_TORCH_CHECK(operation.root >= 0 && operation.root < world(), w, "rank ", operation.root,
                      " is not one of a group of ", world());
    operation.stream = currentStream(block_->device).native_handle();
    backend_->withCommunicator(block_->device, w, [&](Communicator& communicator) {
      if (windowed) operation.window = window(communicator, channel, w);
      communicator.run(operation, w, Milliseconds(timeoutMs));
    });
  }

  bool belongsTo(const ShuntBackend& backend) const { return backend_.get() == &backend; }
  int rank() const { return rank_; }
  int world() const { return static_cast<int>(buffers_.size()); }
  const Block& block() const { return *block_; }
  const std::vector<void*>& buffers() const { return buffers_; }
  const std::vector<void*>& pads() const { return pads_; }
  const std::vector<int>& ranks() const { return ranks_; }
  void** onDevice(int list) const { return static_cast<void**>(onDevice_.data_ptr()) + list * world(); }
  int* ranksOnDevice() const { return static_cast<int*>(ranksOnDevice_.data_ptr()); }

 private:
  Where where(const char* name) const { return {name, rank_, &group_}; }

  // The window of a channel, made at its first use: that is local. Only for who has the communicator.
  shunt_window window(Communicator& communicator, int channel, const Where& w) {
    auto& made = windows_[channel];
    void* base = nullptr;
    void* memory = block_->place(block_->windows + channel * kWindowBytes);
    if (made == nullptr) check(api().window_at_(communicator.handle(), memory, kWindowBytes, &made, &base), w);
    return made;
  }

  const c10::intrusive_ptr<Block> block_;
  const c10::intrusive_ptr<ShuntBackend> backend_;
  const std::string group_;
  const int rank_;
  std::vector<void*> buffers_, pads_;
  std::vector<int> ranks_;
  at::Tensor onDevice_, ranksOnDevice_;
  std::map<int, shunt_window> windows_;
};

// What a rendezvous returns: shared memory, seen from one of its tensors.
class Memory : public symm::SymmetricMemory {
 public:
  Memory(c10::intrusive_ptr<Shared> shared, size_t offset) : shared_(std::move(shared)), offset_(offset) {}

  std::vector<void*> get_buffer_ptrs() override { return shared_->buffers(); }
  std::vector<void*> get_signal_pad_ptrs() override { return shared_->pads(); }
  void** get_buffer_ptrs_dev() override { return shared_->onDevice(0); }
  void** get_signal_pad_ptrs_dev() override { return shared_->onDevice(1); }
  size_t get_buffer_size() override { return shared_->block().size; }
  size_t get_offset() override { return offset_; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }

  // The barrier of the group: it is in order with the group's other calls, whatever the channel.
  void barrier(int channel, size_t timeoutMs) override {
    auto operation = operationOf(SHUNT_COLL_BARRIER, 0);
    shared_->run("barrier", operation, channel, timeoutMs);
  }
  void put_signal(int dstRank, int channel, size_t timeoutMs) override {
    shared_->run("put_signal", operationOf(SHUNT_COLL_SIGNAL, dstRank), channel, timeoutMs);
  }
  void wait_signal(int srcRank, int channel, size_t timeoutMs) override {
    auto operation = operationOf(SHUNT_COLL_WAIT, srcRank);
    operation.offset = 1;
    shared_->run("wait_signal", operation, channel, timeoutMs);
  }

  int get_rank() override { return shared_->rank(); }
  int get_world_size() override { return shared_->world(); }
  c10::Device get_device() override { return shared_->block().device; }
  const std::vector<int>& get_rank_to_global_rank() override { return shared_->ranks(); }
  int* get_rank_to_global_rank_dev() override { return shared_->ranksOnDevice(); }
  bool world_within_direct_access() override { return true; }

 private:
  static shunt_operation operationOf(shunt_collective collective, int peer) {
    shunt_operation operation = SHUNT_OPERATION_INIT;
    operation.collective = collective;
    operation.root = peer;
    return operation;
  }

  const c10::intrusive_ptr<Shared> shared_;
  const size_t offset_;
};

class Allocator : public symm::SymmetricMemoryAllocator {
 public:
  void* alloc(size_t size, int device, const std::optional<std::string>& group) override {
    at::Device place(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    if (!place.has_index()) place = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();  // "cuda" is the current one
    auto block = c10::make_intrusive<Block>(size, place, group);
    std::lock_guard<std::mutex> lock(mutex_);
    entries_.emplace(block->base, Entry{block, {}});
    return block->base;
  }

  void free(void* p) override {
    Entry freed;  // ends without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = entries_.find(p); found != entries_.end()) {
      freed = std::move(found->second);
      entries_.erase(found);
    }
  }

  size_t get_alloc_size(void* p) override {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* entry = covering(p);
    TORCH_CHECK(entry != nullptr, "shunt: get_alloc_size: ", p, " is not in symmetric memory of SHUNT");
    return entry->block->size;
  }

  c10::intrusive_ptr<symm::SymmetricMemory> rendezvous(void* p, const std::optional<std::string>& group) override {
    c10::intrusive_ptr<Block> block;
    std::string name;
    c10::intrusive_ptr<Shared> shared;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto* entry = covering(p);
      if (entry == nullptr) return nullptr;  // as torch's own: memory of another allocator
      block = entry->block;
      TORCH_CHECK_VALUE(group || block->group,
                        "shunt: rendezvous: no group is given, here or where the memory was allocated");
      name = group ? *group : *block->group;
      if (auto found = entry->shared.find(name); found != entry->shared.end()) shared = found->second;
    }
    // A group that was destroyed has taken its mappings along, and another one may bear its name.
    auto backend = backendOf(name, block->device);
    if (!shared || !shared->belongsTo(*backend)) {
      auto ended = std::exchange(shared, made(block, backend, name));  // ends without the lock
      std::lock_guard<std::mutex> lock(mutex_);
      if (auto* entry = covering(p); entry != nullptr) entry->shared[name] = shared;
    }
    return seen(shared, p);
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return at::kCUDA; }
  // Overrides from torch 2.12 on.
  bool has_allocation(void* p) {
    std::lock_guard<std::mutex> lock(mutex_);
    return covering(p) != nullptr;
  }
  std::string name() override { return "SHUNT"; }

 private:
  struct Entry {
    c10::intrusive_ptr<Block> block;
    std::map<std::string, c10::intrusive_ptr<Shared>> shared;  // by group
  };

  // With mutex_.
  Entry* covering(void* p) {
    auto after = entries_.upper_bound(p);
    if (after == entries_.begin()) return nullptr;
    auto& entry = std::prev(after)->second;
    return p < entry.block->place(std::max<size_t>(entry.block->size, 1)) ? &entry : nullptr;
  }

  static c10::intrusive_ptr<symm::SymmetricMemory> seen(const c10::intrusive_ptr<Shared>& shared, void* p) {
    return c10::make_intrusive<Memory>(shared, static_cast<char*>(p) - static_cast<char*>(shared->block().base));
  }

  // Collective, and torch calls with the GIL: other threads of the program may have to do what the ranks wait for.
  static c10::intrusive_ptr<Shared> made(const c10::intrusive_ptr<Block>& block,
                                         const c10::intrusive_ptr<ShuntBackend>& backend, const std::string& group) {
    WithoutGil released;
    return c10::make_intrusive<Shared>(block, backend, group);
  }

  static c10::intrusive_ptr<ShuntBackend> backendOf(const std::string& group, const at::Device& device) {
    auto backend = c10d::resolve_process_group(group)->getBackend(device.type());
    auto found = c10::dynamic_intrusive_pointer_cast<ShuntBackend>(backend);
    TORCH_CHECK_VALUE(found, "shunt: rendezvous: the backend of group ", group, " for ", device.type(), " is ",
                      backend->getBackendName(), "; symmetric memory of SHUNT needs a group with the backend shunt");
    return found;
  }

  std::mutex mutex_;
  std::map<void*, Entry> entries_;
};

}  // namespace

void offerSymmetricMemory() { symm::register_availability("SHUNT", c10::make_intrusive<Allocator>()); }

}  // namespace shunt_torch
