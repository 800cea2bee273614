// bench.cu: times the kernels against NCCL's best mode, interleaved, and checks
// every result. One process per GPU. The script run starts it. Several folders of
// images, of other sources too, take turns in one run; the script images makes them.
#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "job.h"
#include "nccl.h"

using job::rank;
using job::world;

// ---- options ----------------------------------------------------------------
static std::string images = "transports/cudaipc/images", nccl_path, only, json_path, table_path;
static long min_bytes = 8, max_bytes = 1l << 30;
static int samples = 21;
static bool eager = false, variants = false;

// ---- data -------------------------------------------------------------------
enum Collective { kNothing, kBarrier, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kBroadcast, kReduce, kSendRecv,
                  kCollectives };
static const char *const kNames[] = {"nothing",    "barrier",   "all_reduce", "all_gather", "reduce_scatter",
                                     "all_to_all", "broadcast", "reduce",     "sendrecv"};

// Random floats in [-1, 1) from (rank, index, seed).
__device__ __forceinline__ float value_of(int r, long i, unsigned seed) {
  unsigned long long x =
      (unsigned long long)(i + 1) * 0x9E3779B97F4A7C15ull + (unsigned long long)(r + 1) * 0xBF58476D1CE4E5B9ull + seed;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBull;
  x ^= x >> 29;
  return int(x >> 32) * (1.0f / 2147483648.0f);
}

__global__ void fill(float *p, long n, int r, unsigned seed) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
    p[i] = value_of(r, i, seed);
}

constexpr unsigned kPoison = 0xFFBADBADu;  // a NaN
__global__ void poison(unsigned *p, long n) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) p[i] = kPoison;
}

// Counts elements of recv that are wrong, guards included. n is elements of
// recv, block elements of one block.
__global__ void verify(const unsigned *recv, long n, long block, long guard, int coll, int me, int ranks, int root,
                       unsigned seed, float tolerance, unsigned long long *wrong) {
  unsigned long long bad = 0;
  for (long k = blockIdx.x * (long)blockDim.x + threadIdx.x; k < n + 2 * guard; k += (long)gridDim.x * blockDim.x) {
    long i = k - guard;
    unsigned got = recv[i];
    if (i < 0 || i >= n) {
      bad += got != kPoison;
      continue;
    }
    float want = 0;
    switch (coll) {
      case kNothing:
      case kBarrier:
        bad += got != kPoison;
        continue;
      case kAllReduce:
      case kReduce:
        if (coll == kReduce && me != root) {
          bad += got != kPoison;
          continue;
        }
        want = value_of(0, i, seed);
        for (int r = 1; r < ranks; r++) want = __fadd_rn(want, value_of(r, i, seed));
        break;
      case kReduceScatter:
        want = value_of(0, me * block + i, seed);
        for (int r = 1; r < ranks; r++) want = __fadd_rn(want, value_of(r, me * block + i, seed));
        break;
      case kAllGather:
        want = value_of(i / block, i % block, seed);
        break;
      case kAllToAll:
        want = value_of(i / block, me * block + i % block, seed);
        break;
      case kBroadcast:
        want = value_of(root, i, seed);
        break;
      case kSendRecv:
        want = value_of((me + ranks - 1) % ranks, i, seed);
        break;
    }
    float x = __uint_as_float(got);
    bad += tolerance == 0 ? got != __float_as_uint(want) : !(fabsf(x - want) <= tolerance);
  }
  if (bad) atomicAdd(wrong, bad);
}

// Holds the stream until the host lets it go, at most 5 s.
__global__ void gate(volatile unsigned *word, unsigned value) {
  unsigned long long t0, t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
  while (int(*word - value) < 0) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    if (t - t0 > 5000000000ull) return;
  }
}

// ---- one size of one collective ----------------------------------------------
struct Case {
  Collective coll;
  long bytes;  // as nccl-tests counts: the larger of what a rank sends and receives
  long block;  // shunt_kernel_args.bytes
  long send_bytes, recv_bytes;
  int slots;   // buffers in rotation
  int root = 0;
};

constexpr long kGuard = 4096;
static job::Memory send_arena, recv_arena;
static char *window_send, *window_recv;
static long arena_bytes;
static nccl::Comm comm;
static cudaStream_t stream;
static unsigned *gate_word;
static unsigned gate_count;
static unsigned long long *wrong;

static long send_offset(const Case &c, int slot) { return slot * ((c.send_bytes + 511) / 512 * 512); }
static long recv_offset(const Case &c, int slot) {
  return kGuard + slot * ((c.recv_bytes + 511) / 512 * 512 + 2 * kGuard);
}

// A folder of images, with regions of their own, laid out as layout.h of their sources
// has it: the folder's file layout says so where that is another one than this program's.
struct Images {
  std::string name;
  std::vector<cudaLibrary_t> libraries;
  std::map<std::string, cudaKernel_t> known;
  job::Memory region;
  long region_bytes, exports, imports;
};
static std::list<Images> folders;
static Images *now;  // those whose kernels are launched

// One way of doing a case.
struct Candidate {
  std::string name;
  bool window;
  bool ours;
  std::function<void(const Case &, int slot)> how;
  Images *images = now;
  std::string label() const { return ours && folders.size() > 1 ? images->name + ": " + name : name; }
  void launch(const Case &c, int slot) const {
    now = images;
    how(c, slot);
  }
};

static void make_case(Case &c, Collective coll, long bytes) {
  c.coll = coll;
  bool split = coll == kAllGather || coll == kReduceScatter || coll == kAllToAll;
  c.block = split ? std::max(bytes / world / 4 * 4, 4l) : bytes;
  c.bytes = split ? c.block * world : bytes;
  c.send_bytes = coll == kAllGather ? c.block : c.bytes;
  c.recv_bytes = coll == kReduceScatter ? c.block : c.bytes;
  long each = (std::max(c.send_bytes, c.recv_bytes) + 511) / 512 * 512 + 2 * kGuard;
  c.slots = int(std::min(16l, (arena_bytes - kGuard) / each));
  if (c.slots < 1) {
    fprintf(stderr, "arena too small for %ld bytes\n", bytes);
    _exit(1);
  }
}

// ---- kernels from images -----------------------------------------------------
static void load_images(Images &f, const std::string &folder) {
  f.name = folder.substr(folder.find_last_of('/') + 1);
  f.libraries = job::load_images(folder);
  if (f.libraries.empty()) {
    fprintf(stderr, "no images in %s\n", folder.c_str());
    _exit(1);
  }
  f.region_bytes = SHUNT_REGION_BYTES(world), f.exports = SHUNT_OFF_EXPORTS, f.imports = SHUNT_OFF_IMPORTS;
  if (FILE *layout = fopen((folder + "/layout").c_str(), "r")) {
    int ranks;
    long bytes, exports, imports;
    while (fscanf(layout, "%d %ld %ld %ld", &ranks, &bytes, &exports, &imports) == 4)
      if (ranks == world) f.region_bytes = bytes, f.exports = exports, f.imports = imports;
    fclose(layout);
  }
  f.region = job::allocate(f.region_bytes);
}

static cudaKernel_t kernel(const std::string &name) {
  auto &known = now->known;
  auto it = known.find(name);
  if (it != known.end()) return it->second;
  for (auto lib : now->libraries) {
    cudaKernel_t k;
    if (cudaLibraryGetKernel(&k, lib, name.c_str()) == cudaSuccess) {
      cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
      cudaGetLastError();
      return known[name] = k;
    }
  }
  cudaGetLastError();
  return known[name] = nullptr;
}

static shunt_kernel_args arguments(const Case &c, int slot) {
  shunt_kernel_args a{};
  a.send = (uint64_t)(send_arena.own + send_offset(c, slot));
  a.recv = (uint64_t)(recv_arena.own + recv_offset(c, slot));
  a.bytes = c.coll <= kBarrier ? 0 : c.block;
  a.timeout = 2000000000ull;
  a.rank = rank;
  a.world = world;
  a.root = c.root;
  for (int r = 0; r < world; r++) a.region[r] = (uint64_t)now->region.of[r];
  return a;
}

// spread: see kernels/device.cuh.
static void launch_kernel(cudaKernel_t k, int blocks, int threads, int dynamic, bool dependent, void *args,
                          bool spread = false) {
  cudaLaunchConfig_t config{};
  config.gridDim = spread ? dim3(2, blocks) : dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = dynamic;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  void *list[] = {args};
  CHECK(cudaLaunchKernelExC(&config, (const void *)k, list));
}

static int clamp(long v, long lo, long hi) { return int(std::max(lo, std::min(hi, v))); }

static void add_kernel(std::vector<Candidate> &list, const std::string &name, int blocks, int threads, int dynamic = 0,
                       bool dependent = true, bool spread = false) {
  cudaKernel_t k = kernel(name);
  if (!k) return;
  char label[160];
  const char *how = spread ? " spread" : dependent ? "" : " nodep";
  snprintf(label, sizeof label, "%s%s %dx%d", name.substr(6).c_str(), how, blocks, threads);
  for (auto &c : list)
    if (c.images == now && c.name == label) return;
  list.push_back({label, false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args a = arguments(c, slot);
                    launch_kernel(k, blocks, threads, dynamic, dependent, &a, spread);
                  }});
}

// The same kernel as a dependent launch, and spread, as the library launches long ones.
static void add_both(std::vector<Candidate> &list, const std::string &name, int blocks, int threads) {
  add_kernel(list, name, blocks, threads);
  add_kernel(list, name, blocks, threads, 0, false, true);
}

#include "candidates.h"

static void add_nccl(std::vector<Candidate> &list, const Case &c, bool window) {
  if (!comm || c.coll == kNothing || c.coll == kBarrier) return;
  list.push_back({window ? "nccl window" : "nccl", window, false, [=](const Case &c, int slot) {
                    char *s = (window ? window_send : send_arena.own) + send_offset(c, slot);
                    char *r = (window ? window_recv : recv_arena.own) + recv_offset(c, slot);
                    long n = c.block / 4;
                    switch (c.coll) {
                    case kAllReduce:
                      NCCL_CHECK(nccl::AllReduce(s, r, n, nccl::kFloat32, nccl::kSum, comm, stream));
                      break;
                    case kAllGather: NCCL_CHECK(nccl::AllGather(s, r, n, nccl::kFloat32, comm, stream)); break;
                    case kReduceScatter:
                      NCCL_CHECK(nccl::ReduceScatter(s, r, n, nccl::kFloat32, nccl::kSum, comm, stream));
                      break;
                    case kAllToAll: NCCL_CHECK(nccl::AlltoAll(s, r, n, nccl::kFloat32, comm, stream)); break;
                    case kBroadcast: NCCL_CHECK(nccl::Broadcast(s, r, n, nccl::kFloat32, c.root, comm, stream)); break;
                    case kReduce:
                      NCCL_CHECK(nccl::Reduce(s, r, n, nccl::kFloat32, nccl::kSum, c.root, comm, stream));
                      break;
                    default:
                      NCCL_CHECK(nccl::GroupStart());
                      NCCL_CHECK(nccl::Send(s, n, nccl::kFloat32, (rank + 1) % world, comm, stream));
                      NCCL_CHECK(nccl::Recv(r, n, nccl::kFloat32, (rank + world - 1) % world, comm, stream));
                      NCCL_CHECK(nccl::GroupEnd());
                    }
                  }});
}

// ---- checking and timing -----------------------------------------------------

// Waits for the stream, and names what ran if it failed: ours or NCCL's.
static void finish(const Case &c, const Candidate &cand) {
  cudaError_t error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) return;
  fprintf(stderr, "rank %d: %s of %ld bytes by %s: %s\n", rank, kNames[c.coll], c.bytes, cand.label().c_str(),
          cudaGetErrorString(error));
  _exit(1);
}

static long check_slot(const Case &c, const Candidate &cand, int slot, unsigned seed, bool run) {
  char *s = (cand.window ? window_send : send_arena.own) + send_offset(c, slot);
  char *r = (cand.window ? window_recv : recv_arena.own) + recv_offset(c, slot);
  if (run) {
    fill<<<256, 256, 0, stream>>>((float *)s, c.send_bytes / 4, rank, seed);
    poison<<<256, 256, 0, stream>>>((unsigned *)(r - kGuard), (c.recv_bytes + 2 * kGuard) / 4);
    CHECK(cudaStreamSynchronize(stream));
    job::barrier();
    cand.launch(c, slot);
  }
  CHECK(cudaMemsetAsync(wrong, 0, 8, stream));
  bool reduces = c.coll == kAllReduce || c.coll == kReduce || c.coll == kReduceScatter;
  verify<<<256, 256, 0, stream>>>((unsigned *)r, c.recv_bytes / 4, c.block / 4, kGuard / 4, c.coll, rank, world, c.root,
                                  seed, reduces && !cand.ours ? 1e-5f : 0, wrong);
  unsigned long long bad;
  CHECK(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
  finish(c, cand);
  shunt_fault fault;
  CHECK(cudaMemcpy(&fault, cand.images->region.own + SHUNT_OFF_FAULT, sizeof fault, cudaMemcpyDeviceToHost));
  if (fault.kind != 0) {
    fprintf(stderr, "rank %d: %s, %ld bytes: fault %u waiting for rank %d epoch %lu\n", rank, cand.label().c_str(),
            c.bytes, fault.kind, fault.peer, (unsigned long)fault.epoch);
    _exit(2);
  }
  return (long)bad;
}

static double max_over_ranks(double v) {
  job::shared->value[rank][0] = v;
  job::barrier();
  double m = 0;
  for (int r = 0; r < world; r++) m = std::max(m, job::shared->value[r][0]);
  job::barrier();
  return m;
}

struct Result {
  double median = 0, p99 = 0;
  long wrong = 0;
};

static std::vector<Result> measure(const Case &c, const std::vector<Candidate> &list) {
  int ops = c.bytes <= (1 << 20) ? 40 : c.bytes <= (32 << 20) ? 10 : c.bytes <= (256 << 20) ? 3 : 2;
  if (ops > 1) ops = (ops + 1) / 2 * 2;
  std::vector<cudaGraphExec_t> graphs(list.size());
  std::vector<Result> results(list.size());
  std::vector<std::vector<double>> times(list.size());
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  static unsigned seed = 1;
  seed += 1000;
  for (size_t k = 0; k < list.size(); k++) {
    for (int slot = 0; slot < c.slots; slot += std::max(1, c.slots - 1))
      results[k].wrong += check_slot(c, list[k], slot, seed + slot, true);
    results[k].wrong = (long)max_over_ranks(results[k].wrong);
    if (results[k].wrong || eager) continue;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < ops; i++) list[k].launch(c, i % c.slots);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&graphs[k], graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(graphs[k], stream));
  }
  int rounds = c.bytes <= (8 << 20) ? samples : std::max(5, samples / 3);
  for (int s = -2; s < rounds; s++)
    for (size_t k = 0; k < list.size(); k++) {
      if (results[k].wrong) continue;
      gate_count++;
      job::barrier();
      gate<<<1, 1, 0, stream>>>(gate_word, gate_count);
      CHECK(cudaEventRecord(start, stream));
      if (eager)
        for (int i = 0; i < ops; i++) list[k].launch(c, i % c.slots);
      else
        CHECK(cudaGraphLaunch(graphs[k], stream));
      CHECK(cudaEventRecord(stop, stream));
      job::barrier();
      *(volatile unsigned *)gate_word = gate_count;
      finish(c, list[k]);
      float ms;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      if (s >= 0) times[k].push_back(ms * 1e3 / ops);
    }
  for (size_t k = 0; k < list.size(); k++) {
    if (results[k].wrong) continue;
    memcpy(job::shared->value[rank], times[k].data(), times[k].size() * sizeof(double));
    job::barrier();
    std::vector<double> slowest;
    for (size_t s = 0; s < times[k].size(); s++) {
      double m = 0;
      for (int r = 0; r < world; r++) m = std::max(m, job::shared->value[r][s]);
      slowest.push_back(m);
    }
    job::barrier();
    std::sort(slowest.begin(), slowest.end());
    results[k].median = slowest[slowest.size() / 2];
    results[k].p99 = slowest[std::min(slowest.size() - 1, slowest.size() * 99 / 100)];
    // A replay over poisoned memory must be right in the first buffer too: it
    // was filled last with this seed, whatever the candidate.
    if (graphs[k]) {
      char *r = (list[k].window ? window_recv : recv_arena.own) + recv_offset(c, 0);
      poison<<<256, 256, 0, stream>>>((unsigned *)(r - kGuard), (c.recv_bytes + 2 * kGuard) / 4);
      CHECK(cudaGraphLaunch(graphs[k], stream));
      results[k].wrong = (long)max_over_ranks(check_slot(c, list[k], 0, seed, false));
      CHECK(cudaGraphExecDestroy(graphs[k]));
    }
  }
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  return results;
}

static double bus_factor(Collective c) {
  double n = world;
  switch (c) {
    case kAllReduce: return 2 * (n - 1) / n;
    case kAllGather:
    case kReduceScatter:
    case kAllToAll: return (n - 1) / n;
    default: return 1;
  }
}

// A line of the table: the best time of each folder's kernels.
static void add_row(FILE *table, const Case &c, const std::vector<Candidate> &list, const std::vector<Result> &results,
                    double nccl) {
  fprintf(table, "%-14s %9ld %7.2f", kNames[c.coll], c.bytes, nccl);
  for (Images &f : folders) {
    double best = 0;
    long wrong = 0;
    for (size_t k = 0; k < list.size(); k++) {
      if (!list[k].ours || list[k].images != &f) continue;
      wrong += results[k].wrong;
      if (!results[k].wrong && (best == 0 || results[k].median < best)) best = results[k].median;
    }
    if (wrong) fprintf(table, " %9s", "WRONG");
    else if (best) fprintf(table, " %9.2f", best);
    else fprintf(table, " %9s", "-");
  }
  fprintf(table, "\n");
  fflush(table);
}

int main(int argc, char **argv) {
  int ranks = 0;
  for (int i = 1; i < argc; i++) {
    std::string s = argv[i];
    auto next = [&]() { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (s == "--ranks") ranks = atoi(next().c_str());
    else if (s == "--images") images = next();
    else if (s == "--nccl") nccl_path = next();
    else if (s == "--only") only = next();
    else if (s == "--min") min_bytes = atol(next().c_str());
    else if (s == "--max") max_bytes = atol(next().c_str());
    else if (s == "--samples") samples = atoi(next().c_str());
    else if (s == "--json") json_path = next();
    else if (s == "--table") table_path = next();
    else if (s == "--eager") eager = true;
    else if (s == "--variants") variants = true;
    else {
      fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (ranks < 2 || ranks > job::kMaxRanks) {
    fprintf(stderr, "--ranks must be 2 to %d\n", job::kMaxRanks);
    return 2;
  }
  job::start(ranks);
  CHECK(cudaSetDevice(rank));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  arena_bytes = 2 * std::min(max_bytes, 1l << 30) + (64 << 20);
  send_arena = job::allocate(arena_bytes);
  recv_arena = job::allocate(arena_bytes);
  std::stringstream list(images);
  for (std::string folder; std::getline(list, folder, ',');) load_images(folders.emplace_back(), folder);
  for (Images &f : folders) {
    now = &f;
    publish();
  }
  CHECK(cudaHostAlloc(&gate_word, 64, cudaHostAllocMapped));
  *gate_word = 0;
  CHECK(cudaMalloc(&wrong, 8));
  if (!nccl_path.empty() && nccl::load(nccl_path.c_str())) {
    nccl::UniqueId id;
    if (rank == 0) {
      NCCL_CHECK(nccl::GetUniqueId(&id));
      memcpy(job::shared->unique_id, &id, sizeof id);
    }
    job::barrier();
    memcpy(&id, job::shared->unique_id, sizeof id);
    NCCL_CHECK(nccl::CommInitRank(&comm, world, id, rank));
    nccl::Window w;
    NCCL_CHECK(nccl::MemAlloc((void **)&window_send, arena_bytes));
    NCCL_CHECK(nccl::MemAlloc((void **)&window_recv, arena_bytes));
    NCCL_CHECK(nccl::CommWindowRegister(comm, window_send, arena_bytes, &w, nccl::kSymmetric));
    NCCL_CHECK(nccl::CommWindowRegister(comm, window_recv, arena_bytes, &w, nccl::kSymmetric));
  }
  FILE *table = rank == 0 && !table_path.empty() ? fopen(table_path.c_str(), "a") : nullptr;
  if (table) {
    fprintf(table, "%-14s %9s %7s", "", "bytes", "nccl");
    for (Images &f : folders) fprintf(table, " %9s", f.name.c_str());
    fprintf(table, "\n");
  }
  FILE *json = rank == 0 && !json_path.empty() ? fopen(json_path.c_str(), "a") : nullptr;
  int bad = 0;
  for (int coll = 0; coll < kCollectives; coll++) {
    if (!only.empty() && (',' + only + ',').find(',' + std::string(kNames[coll]) + ',') == std::string::npos) continue;
    if (rank == 0)
      printf("\n%s, %d GPUs, %s, us (median, p99)\n%12s %9s %9s %9s %9s %6s %8s  %s\n", kNames[coll], world,
             eager ? "eager" : "graph", "bytes", "nccl", "window", "ours", "p99", "ratio", "busbw", "best");
    for (long bytes = min_bytes; bytes <= max_bytes; bytes *= 4) {
      if (coll <= kBarrier && bytes > min_bytes) break;
      Case c;
      make_case(c, Collective(coll), bytes);
      std::vector<Candidate> list;
      for (Images &f : folders) {
        now = &f;
        add_candidates(list, c);
      }
      add_nccl(list, c, false);
      bool has_window = coll == kAllReduce || coll == kAllGather || coll == kReduceScatter;
      if (has_window) add_nccl(list, c, true);
      auto results = measure(c, list);
      if (rank != 0) continue;
      double plain = 0, window = 0;
      int best = -1;
      for (size_t k = 0; k < list.size(); k++) {
        if (results[k].wrong) {
          printf("  WRONG %s: %ld elements\n", list[k].label().c_str(), results[k].wrong);
          bad = 1;
          continue;
        }
        if (list[k].name == "nccl") plain = results[k].median;
        else if (list[k].window) window = results[k].median;
        else if (best < 0 || results[k].median < results[best].median) best = int(k);
        if (json)
          fprintf(json,
                  "{\"collective\":\"%s\",\"ranks\":%d,\"mode\":\"%s\",\"bytes\":%ld,"
                  "\"algorithm\":\"%s\",\"us\":%.3f,\"p99\":%.3f}\n",
                  kNames[coll], world, eager ? "eager" : "graph", c.bytes, list[k].label().c_str(), results[k].median,
                  results[k].p99);
      }
      double theirs = plain && window ? std::min(plain, window) : plain;
      if (best >= 0)
        printf("%12ld %9.2f %9.2f %9.2f %9.2f %6.2f %8.1f  %s\n", c.bytes, plain, window, results[best].median,
               results[best].p99, results[best].median > 0 ? theirs / results[best].median : 0,
               c.bytes * bus_factor(c.coll) / results[best].median / 1e3, list[best].label().c_str());
      if (table) add_row(table, c, list, results, theirs);
      if (variants) {
        printf("            ");
        for (size_t k = 0; k < list.size(); k++)
          if (list[k].ours && !results[k].wrong) printf(" [%s %.2f]", list[k].label().c_str(), results[k].median);
        printf("\n");
      }
      fflush(stdout);
    }
  }
  if (table) fclose(table);
  if (json) fclose(json);
  job::barrier();
  fflush(stdout);
  _exit(bad);
}
