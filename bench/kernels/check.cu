// check.cu: every kernel against a reference on the host: all dtypes and ops,
// odd counts, misaligned buffers, in place, small and large grids, in random
// order, so that calls share slots and epochs as they do in a job; then aborts.
// The reference converts with the CPU executor's own code, so both executors
// return the same bits. One process per GPU.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "job.h"
#include "reference.h"

using job::rank;
using job::world;

// ---- cases -----------------------------------------------------------------
enum Coll { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kReduceScatterV, kAllToAll, kAllToAllV };
enum Grid { kAny, kDirect, kFull, kReduceGrid, kBroadcastGrid, kVGrid };
struct Kernel {
  const char *name;
  Coll coll;
  bool typed;
  Grid grid;
  bool hot = false;  // for the dtypes of most traffic alone
};
static bool suits(const Kernel &k, int t) { return !k.hot || t == 6 || t == 7 || t == 9; }

static const Kernel kKernels[] = {
    {"shunt_all_reduce_one_shot_ll", kAllReduce, true, kAny},
    {"shunt_all_reduce_one_shot_ll128", kAllReduce, true, kAny},
    {"shunt_all_reduce_two_shot_ll128", kAllReduce, true, kAny},
    {"shunt_all_reduce_direct", kAllReduce, true, kDirect},
    {"shunt_all_reduce_direct_any", kAllReduce, true, kDirect, true},
    {"shunt_all_reduce_staged", kAllReduce, true, kDirect},
    {"shunt_all_reduce_staged_any", kAllReduce, true, kDirect, true},
    {"shunt_reduce_one_shot_ll", kReduce, true, kAny},
    {"shunt_reduce_one_shot_ll128", kReduce, true, kAny},
    {"shunt_reduce_two_shot_ll128", kReduce, true, kAny},
    {"shunt_reduce_ll128", kReduce, true, kReduceGrid},
    {"shunt_reduce_staged", kReduce, true, kDirect},
    {"shunt_reduce_staged_any", kReduce, true, kDirect, true},
    {"shunt_broadcast_ll", kBroadcast, false, kAny},
    {"shunt_broadcast_ll128", kBroadcast, false, kBroadcastGrid},
    {"shunt_broadcast_direct", kBroadcast, false, kFull},
    {"shunt_broadcast_chain", kBroadcast, false, kFull},
    {"shunt_all_gather_ll", kAllGather, false, kAny},
    {"shunt_all_gather_ll128", kAllGather, false, kAny},
    {"shunt_all_gather_direct", kAllGather, false, kDirect},
    {"shunt_reduce_scatter_ll", kReduceScatter, true, kAny},
    {"shunt_reduce_scatter_ll128", kReduceScatter, true, kAny},
    {"shunt_reduce_scatter_direct", kReduceScatter, true, kDirect},
    {"shunt_reduce_scatter_direct_any", kReduceScatter, true, kDirect, true},
    {"shunt_reduce_scatter_staged", kReduceScatter, true, kDirect},
    {"shunt_reduce_scatter_staged_any", kReduceScatter, true, kDirect, true},
    {"shunt_reduce_scatter_v_ll", kReduceScatterV, true, kAny, true},
    {"shunt_reduce_scatter_v_ll128", kReduceScatterV, true, kAny, true},
    {"shunt_reduce_scatter_v_direct", kReduceScatterV, true, kDirect, true},
    {"shunt_reduce_scatter_v_direct_any", kReduceScatterV, true, kDirect, true},
    {"shunt_all_to_all_ll", kAllToAll, false, kAny},
    {"shunt_all_to_all_ll128", kAllToAll, false, kAny},
    {"shunt_all_to_all_direct", kAllToAll, false, kDirect},
    {"shunt_all_to_all_v", kAllToAllV, false, kVGrid},
    {"shunt_all_to_all_v_in_turns", kAllToAllV, false, kVGrid},
    {"shunt_all_to_all_v_long", kAllToAllV, false, kVGrid},
    {"shunt_all_to_all_v_on_device", kAllToAllV, false, kVGrid},
};

static std::vector<cudaLibrary_t> libraries;
static cudaStream_t stream;
static job::Memory region, arena;
static shunt_watch *watch;
constexpr int64_t kHalf = 32 << 20, kGuard = 1024;

static cudaKernel_t find(const std::string &name) {
  for (auto lib : libraries) {
    cudaKernel_t k;
    if (cudaLibraryGetKernel(&k, lib, name.c_str()) == cudaSuccess) return k;
  }
  cudaGetLastError();
  if (rank == 0) fprintf(stderr, "no kernel %s\n", name.c_str());
  return nullptr;
}

// spread: see kernels/device.cuh.
static void launch(cudaKernel_t k, int blocks, int threads, void *args, bool spread = false) {
  void *list[] = {args};
  CHECK(cudaLaunchKernel((const void *)k, spread ? dim3(2, blocks) : dim3(blocks), dim3(threads), list, 0, stream));
}

static void known(bool yes) {  // tells direct kernels whether peers can reach the arena
  uint64_t mask = yes ? ~0ull : 0;
  CHECK(cudaMemcpy(region.own + SHUNT_OFF_EXPORTS + offsetof(shunt_export, known), &mask, 8, cudaMemcpyHostToDevice));
}

// A region and a watch page as they are before the first call.
static void reset() {
  memset(watch, 0, sizeof *watch);
  CHECK(cudaMemset(region.own, 0, region.bytes));
  shunt_export e{(uint64_t)arena.own, arena.bytes, ~0ull, 1};
  CHECK(cudaMemcpy(region.own + SHUNT_OFF_EXPORTS, &e, sizeof e, cudaMemcpyHostToDevice));
  for (int r = 0; r < world; r++)
    CHECK(cudaMemcpy(region.own + SHUNT_OFF_IMPORTS + r * SHUNT_MAX_EXPORTS * 8, &arena.of[r], 8,
                     cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
  job::barrier();
}

static void abort_waits() { *(volatile uint32_t *)&watch->abort = 1; }

// A copy of words in this GPU's memory, until the next one of that number.
static uint64_t on_device(int number, const std::vector<int64_t> &words) {
  static char *memory;
  if (!memory) CHECK(cudaMalloc((void **)&memory, 4 * SHUNT_MAX_RANKS * 8));
  char *at = memory + number * SHUNT_MAX_RANKS * 8;
  CHECK(cudaMemcpy(at, words.data(), words.size() * 8, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
  return (uint64_t)at;
}

static shunt_fault fault() {
  shunt_fault f;
  CHECK(cudaMemcpy(&f, region.own + SHUNT_OFF_FAULT, sizeof f, cudaMemcpyDeviceToHost));
  return f;
}

struct Case {
  const Kernel *kernel;
  int type, op, root, shift;  // shift: elements by which buffers miss alignment
  int64_t count;              // elements of a block
  bool in_place, reachable;
  int blocks, threads;
  bool spread;
};

// Runs one case; the number of wrong elements on this rank.
static int64_t run(const Case &c, unsigned seed) {
  const int size = kTypes[c.type].bytes;
  const Coll coll = c.kernel->coll;
  const bool many_in =
      coll == kReduceScatter || coll == kReduceScatterV || coll == kAllToAll || coll == kAllToAllV;
  const bool many_out = coll == kAllGather || coll == kAllToAll || coll == kAllToAllV;
  int64_t send_n = c.count * (many_in ? world : 1), recv_n = c.count * (many_out ? world : 1);
  // all_to_all_v: pair (i, j) sends a count that depends on both, often none. Blocks of reduce_scatter_v are as long on
  // every rank.
  auto pair = [&](int i, int j) { return c.count * (((coll == kReduceScatterV ? 0 : i * 7) + j * 3 + seed) % 4) / 3; };
  // Where in send a block of reduce_scatter_v begins, in bytes.
  auto before_block = [&](int block) {
    int64_t at = 0;
    for (int p = 0; p < block; p++) at += pair(0, p) * size;
    return at;
  };
  double factor[8];
  for (int r = 0; r < world; r++) factor[r] = c.type < 6 ? r + 2 : 0.5 + r * 0.37;
  std::vector<std::vector<char>> data(world);
  for (int r = 0; r < world; r++) {
    data[r].resize(send_n * size + 8);
    generate(c.type, r, send_n, seed, data[r].data());
  }
  char *send = arena.own + kGuard + c.shift * size, *recv = arena.own + kHalf + kGuard + c.shift * size;
  bool in_place = c.in_place && coll != kAllToAllV;
  if (in_place) {
    int64_t block = c.count * size * rank;
    if (coll == kAllGather) send = recv + block;
    else if (coll == kReduceScatter) recv = send + block;
    else if (coll == kReduceScatterV) recv = send + before_block(rank);
    else recv = send;
  }
  std::vector<char> before(recv_n * size + 2 * kGuard, (char)0xA5), after(before.size());
  if (!in_place) CHECK(cudaMemcpy(recv - kGuard, before.data(), before.size(), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(send, data[rank].data(), send_n * size, cudaMemcpyHostToDevice));
  if (in_place) CHECK(cudaMemcpy(before.data(), recv - kGuard, before.size(), cudaMemcpyDeviceToHost));

  shunt_kernel_args_v v{};
  shunt_kernel_args &a = v.base;
  a.send = (uint64_t)send, a.recv = (uint64_t)recv, a.bytes = c.count * size, a.scalar = factor[rank];
  a.abort = (uint64_t)watch, a.timeout = 5000000000ull;
  a.rank = rank, a.world = world, a.op = c.op, a.root = c.root;
  for (int r = 0; r < world; r++) a.region[r] = (uint64_t)region.of[r];
  int64_t at[2] = {0, 0};
  shunt_messages &m = v.messages;
  std::vector<int64_t> elements[4];
  for (int p = 0; p < world; p++) {
    m.send_count[p] = pair(rank, p) * size, m.send_displ[p] = at[0], at[0] += m.send_count[p];
    m.recv_count[p] = pair(p, rank) * size, m.recv_displ[p] = at[1], at[1] += m.recv_count[p];
    const int64_t bytes[4] = {m.send_count[p], m.send_displ[p], m.recv_count[p], m.recv_displ[p]};
    for (int i = 0; i < 4; i++) elements[i].push_back(bytes[i] / size);
    if (coll == kReduceScatterV) a.bytes = std::max(p == 0 ? 0 : a.bytes, m.send_count[p]);
  }
  shunt_kernel_args_on_device d{a, 0, 0, 0, 0, size, send_n, recv_n};
  const bool counts = std::string(c.kernel->name).find("_on_device") != std::string::npos, packed = seed % 2;
  if (counts) d.send_counts = on_device(0, elements[0]), d.recv_counts = on_device(2, elements[2]);
  if (counts && !packed) d.send_displs = on_device(1, elements[1]), d.recv_displs = on_device(3, elements[3]);
  if (c.kernel->grid == kDirect || c.kernel->grid == kFull || c.kernel->grid == kVGrid) known(c.reachable);
  CHECK(cudaDeviceSynchronize());  // copies from pageable memory may still be under way
  job::barrier();
  cudaKernel_t k = find(c.kernel->typed ? std::string(c.kernel->name) + "_" + kTypes[c.type].name : c.kernel->name);
  if (!k) return 1;
  launch(k, c.blocks, c.threads, counts ? (void *)&d : &v, c.spread);
  CHECK(cudaStreamSynchronize(stream));
  shunt_fault f = fault();
  if (f.kind) {
    fprintf(stderr, "rank %d: %s %s %s count %ld: fault %u waiting for rank %d, epoch %lu\n", rank, c.kernel->name,
            kTypes[c.type].name, kOps[c.op], (long)c.count, f.kind, f.peer, (unsigned long)f.epoch);
    _exit(2);
  }
  CHECK(cudaMemcpy(after.data(), recv - kGuard, after.size(), cudaMemcpyDeviceToHost));

  std::vector<char> want = before;
  char *out = want.data() + kGuard;
  std::vector<const char *> in(world);
  bool mine = coll != kReduce || rank == c.root;
  const int64_t block = coll == kReduceScatterV ? pair(0, rank) : c.count;
  for (int64_t i = 0; i < block && mine; i++) {
    switch (coll) {
      case kAllReduce:
      case kReduce:
      case kReduceScatter:
      case kReduceScatterV: {
        int64_t from = coll == kReduceScatter    ? rank * c.count + i
                       : coll == kReduceScatterV ? before_block(rank) / size + i
                                                 : i;
        for (int r = 0; r < world; r++) in[r] = data[r].data() + from * size;
        reduce_reference(c.type, c.op, in, factor, out + i * size);
        break;
      }
      case kBroadcast:
        memcpy(out + i * size, data[c.root].data() + i * size, size);
        break;
      case kAllGather:
        for (int r = 0; r < world; r++) memcpy(out + (r * c.count + i) * size, data[r].data() + i * size, size);
        break;
      case kAllToAll:
        for (int r = 0; r < world; r++)
          memcpy(out + (r * c.count + i) * size, data[r].data() + (rank * c.count + i) * size, size);
        break;
      default:
        break;
    }
  }
  if (coll == kAllToAllV) {
    int64_t to = 0;
    for (int r = 0; r < world; r++) {
      int64_t from = 0;
      for (int p = 0; p < rank; p++) from += pair(r, p) * size;
      memcpy(out + to, data[r].data() + from, pair(r, rank) * size);
      to += pair(r, rank) * size;
    }
  }
  int64_t bad = 0;
  for (int64_t i = 0; i < recv_n; i++) {
    const char *x = after.data() + kGuard + i * size, *y = out + i * size;
    if (!(c.kernel->typed ? same(c.type, x, y) : memcmp(x, y, size) == 0)) {
      if (bad++ == 0 && getenv("SHUNT_CHECK_VERBOSE"))
        fprintf(stderr, "rank %d element %ld: got %g want %g\n", rank, (long)i, c.type < 6 ? 0 : widen(c.type, x),
                c.type < 6 ? 0 : widen(c.type, y));
    }
  }
  bad += memcmp(after.data(), want.data(), kGuard) != 0;
  bad += memcmp(after.data() + after.size() - kGuard, want.data() + want.size() - kGuard, kGuard) != 0;
  return bad;
}

static int64_t worst(int64_t v) {
  job::shared->value[rank][0] = (double)v;
  job::barrier();
  double m = 0;
  for (int r = 0; r < world; r++) m = std::max(m, job::shared->value[r][0]);
  job::barrier();
  return (int64_t)m;
}

#include "lengths.h"

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: check RANKS IMAGES SECONDS [SEED [DTYPE]]\n");
    return 2;
  }
  double limit = atof(argv[3]);
  unsigned seed = argc > 4 ? atoi(argv[4]) : 1;
  std::vector<int> types;
  for (int t = 0; t < 12; t++)
    if (argc <= 5 || strcmp(argv[5], kTypes[t].name) == 0) types.push_back(t);
  job::start(atoi(argv[1]));
  CHECK(cudaSetDevice(job::device()));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  libraries = job::load_images(argv[2]);
  region = job::allocate(SHUNT_REGION_BYTES(world));
  arena = job::allocate(2 * kHalf);
  CHECK(cudaHostAlloc((void **)&watch, sizeof *watch, cudaHostAllocMapped));
  reset();

  // First every kernel with every dtype and op once, then at random.
  std::vector<Case> fixed;
  // SHUNT_CHECK_ONLY: parts of names, with commas; kernels that have none of them are left out.
  std::vector<Kernel> kernels;
  const char *parts = getenv("SHUNT_CHECK_ONLY");
  for (const Kernel &k : kKernels) {
    bool chosen = !parts;
    for (std::string rest = parts ? parts : ""; !rest.empty();) {
      const size_t end = std::min(rest.find(','), rest.size());
      chosen = chosen || std::string(k.name).find(rest.substr(0, end)) != std::string::npos;
      rest = rest.substr(std::min(end + 1, rest.size()));
    }
    if (chosen && std::any_of(types.begin(), types.end(), [&](int t) { return suits(k, t); })) kernels.push_back(k);
  }
  for (const Kernel &k : kernels)
    for (int t : types)
      for (int op = 0; op < (k.typed ? 6 : 1); op++)
        if (k.typed ? suits(k, t) : t == types[0])
          fixed.push_back({&k, t, op, (t + op) % world, 0, 1037, false, true, 8, 512});
  // Staged kernels with shards of whole chunks, where the last lacks its last element,
  // and with odd lengths, in memory that is aligned and that is not; a reduce of
  // many rounds a warp, to every root; and what is pulled, in rounds.
  for (const Kernel &k : kernels) {
    const std::string name = k.name;
    const bool staged = name.find("_staged") != std::string::npos, rooted = name == "shunt_reduce_two_shot_ll128";
    const bool pulled =
        name.find("reduce_direct") != std::string::npos || name.find("scatter_direct") != std::string::npos;
    for (int t : types) {
      if (!suits(k, t)) continue;
      const int64_t chunk = SHUNT_STAGE_BYTES(world) / kTypes[t].bytes,
                    one_owner = k.coll == kReduceScatter || (k.coll == kReduce && world == 2),
                    owners = one_owner ? 1 : k.coll == kReduce ? world - 1 : world;
      struct {
        int64_t count;
        int shift;
        bool in_place, reachable;
      } const shapes[] = {{3 * chunk * owners, 0, t % 2 == 0, true},
                          {3 * chunk * owners - 1, 0, t % 2 == 1, true},
                          {3 * chunk * owners - 1, 1, t % 2 == 0, true},
                          {2 * chunk * owners + 1037, 0, false, t % 3 != 0},
                          {2 * chunk * owners + 1037, 1, true, t % 3 != 1}};
      for (const auto &shape : shapes)
        if (staged)
          fixed.push_back({&k, t, t % 2 ? 0 : 5, (t + shape.shift) % world, shape.shift, shape.count, shape.in_place,
                           shape.reachable, 2, 512});
      for (int root = 0; root < world && rooted; root++)
        fixed.push_back({&k, t, 0, root, t % 2, 9001, t % 3 == 0, true, 1, 64});
      // Rounds of eight vectors a thread, then nothing, some rows and the rest of a vector,
      // and the same in memory that is not aligned.
      const int64_t round = 8 * SHUNT_MAX_THREADS * 16 / kTypes[t].bytes * owners;
      for (int op = 0; op < 6 && pulled; op++) {
        fixed.push_back({&k, t, op, 0, 0, 2 * round, op % 2 == 0, true, 1, 512});
        fixed.push_back({&k, t, op, 0, 0, round + round / 3 + 1037, op % 2 == 1, true, 1, 512});
        fixed.push_back({&k, t, op, 0, 1, round + 1037, op % 2 == 0, true, 1, 512});
      }
    }
  }
  std::mt19937 random(seed);
  auto pick = [&](auto &&list) { return list[random() % list.size()]; };
  int64_t cases = 0, failed = 0;
  double begin = job::seconds();
  for (size_t i = 0;; i++) {
    if (i >= fixed.size() && worst(job::seconds() - begin > limit)) break;
    Case c;
    if (i < fixed.size()) {
      c = fixed[i];
    } else {
      do c.kernel = &kernels[random() % kernels.size()], c.type = pick(types);
      while (!suits(*c.kernel, c.type));
      c.op = random() % 6, c.root = random() % world;
      c.shift = random() % 3 == 0 ? random() % 16 : 0;
      c.count = pick(std::vector<int64_t>{0,   1,   2,   3,    7,    15,   16,    17,    119,    120,   121,
                                          479, 480, 481, 1023, 1025, 4099, 20011, 65537, 150001, 700001});
      c.in_place = random() % 3 == 0, c.reachable = random() % 3 != 0;
      c.blocks = pick(std::vector<int>{1, 2, 5, 8, 33, 64}), c.threads = pick(std::vector<int>{32, 64, 256, 512});
    }
    const std::string name = c.kernel->name;
    const bool passed_on = name.find("_chain") != std::string::npos || name.find("_ring") != std::string::npos;
    if (i >= fixed.size() && c.kernel->coll != kAllToAllV && !passed_on) c.count = std::min(c.count, int64_t(150001));
    if (c.kernel->coll == kAllToAllV && (name == "shunt_all_to_all_v" || name == "shunt_all_to_all_v_in_turns") &&
        c.count * kTypes[c.type].bytes >= 1 << 20)
      c.count /= 8;
    if (c.kernel->grid == kDirect) c.threads = 512;
    if (c.kernel->grid == kFull) c.blocks = SHUNT_MAX_BLOCKS, c.threads = SHUNT_MAX_THREADS;
    if (c.kernel->grid == kReduceGrid)
      c.blocks = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / (world - 1)) * (world - 1), c.threads = 512;
    if (c.kernel->grid == kBroadcastGrid) {
      const job::Grid b = job::broadcast_grid(c.count * kTypes[c.type].bytes, world);
      c.blocks = b.blocks, c.threads = b.threads;
      if (i >= fixed.size() && random() % 4 == 0) c.blocks = 1 + random() % c.blocks;  // in turns
    }
    if (c.kernel->grid == kVGrid) {  // no pair's message is longer than count, see run
      const int most = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / world);
      const int units = int(std::max(
          int64_t(1), std::min((c.count * kTypes[c.type].bytes + 479) / 480, int64_t(most * SHUNT_MAX_WARPS))));
      const bool is_short = name == "shunt_all_to_all_v", any = !is_short && name != "shunt_all_to_all_v_in_turns";
      const bool turns = !is_short && (!any || (i >= fixed.size() && random() % 4 == 0));  // a budget of 8
      c.root = turns ? most : std::min(units, most);
      c.blocks = turns ? 8 : any ? SHUNT_MAX_BLOCKS : world * c.root;
      c.threads = any ? SHUNT_MAX_THREADS : (units + most - 1) / most * 32;
    }
    c.spread = random() % 4 == 0 &&
               (c.kernel->grid == kDirect || c.kernel->grid == kFull ||
                (c.kernel->grid == kVGrid && name != "shunt_all_to_all_v" && name != "shunt_all_to_all_v_in_turns"));
    int64_t bad = worst(run(c, (unsigned)(seed * 7919 + i)));
    cases++;
    if (bad) {
      failed++;
      if (rank == 0 && failed <= 40)
        printf("WRONG %s %s %s count %ld shift %d%s%s grid %dx%d%s root %d: %ld elements\n", c.kernel->name,
               kTypes[c.type].name, kOps[c.op], (long)c.count, c.shift, c.in_place ? " in place" : "",
               c.reachable ? "" : " unreachable", c.blocks, c.threads, c.spread ? " spread" : "", c.root, (long)bad);
    }
  }
  if (rank == 0) printf("check: %ld cases on %d GPUs, %ld wrong\n", (long)cases, world, (long)failed), fflush(stdout);

  const int64_t silent = check_lengths();

  // Abort: the last rank stays away; raising the word ends the others' kernel
  // with a fault that names it, and the context still works.
  job::barrier();
  int64_t aborted = 0;
  if (rank != world - 1) {
    Case c{&kKernels[0], 7, 0, 0, 0, 4099, false, true, 8, 512};
    shunt_kernel_args a{};
    a.send = (uint64_t)arena.own, a.recv = (uint64_t)(arena.own + kHalf), a.bytes = c.count * 4;
    a.abort = (uint64_t)watch, a.rank = rank, a.world = world;
    for (int r = 0; r < world; r++) a.region[r] = (uint64_t)region.of[r];
    launch(find("shunt_all_reduce_one_shot_ll_float32"), c.blocks, c.threads, &a);
    double start = job::seconds();
    while (job::seconds() - start < 0.05) {
    }
    aborted += cudaStreamQuery(stream) != cudaErrorNotReady;
    abort_waits();
    double raised = job::seconds();
    CHECK(cudaStreamSynchronize(stream));
    double took = job::seconds() - raised;
    shunt_fault f = fault();
    aborted += f.kind != SHUNT_FAULT_ABORTED || f.peer != world - 1 || took > 1;
    CHECK(cudaMemset(arena.own, 0, 4096));
    CHECK(cudaDeviceSynchronize());
    if (rank == 0) {
      printf("abort: kernel ended %.0f us after the word was raised, naming rank %d\n", took * 1e6, f.peer);
      fflush(stdout);
    }
  }
  aborted = worst(aborted);
  if (rank == 0 && aborted) printf("WRONG abort\n"), fflush(stdout);
  _exit(failed || silent || aborted);
}
