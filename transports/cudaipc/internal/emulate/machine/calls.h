// calls.h: a call of any kernel as every rank makes it, its data and arguments, what must
// come of it, and its launch. Part of check.cc.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda.h"
#include "layout.h"
#include "machine.h"
#include "values.h"

using emulate::Policy;

enum Coll { kAllReduce, kReduce, kReduceScatter, kReduceScatterV, kBroadcast, kAllGather, kAllToAllV, kAllToAll,
            kDelivered, kBarrier, kSymmetric, kCopy, kSignals, kWindow };
enum Grid { kAny, kAllThreads, kFull, kReduceGrid, kPairs, kOneWarp };

struct Kernel {
  std::string name;
  Coll coll;
  Grid grid;
  int type;  // -1: bytes
  void *entry;
  void *twin;  // the kernel for memory that is aligned, or that for any; ranks may run either
};

static bool has(const std::string &s, const char *part) { return s.find(part) != std::string::npos; }

static void *entry(const std::string &name) {
  void *p = dlsym(RTLD_DEFAULT, name.c_str());
  if (!p) fprintf(stderr, "no kernel %s\n", name.c_str()), exit(2);
  return p;
}

// The other of the two kernels of a reduction; null if there is none, or it was not compiled.
static void *twin(std::string name) {
  if (has(name, "delivered")) return nullptr;  // the one for aligned memory is for no other
  const size_t any = name.find("_any_");
  if (any != std::string::npos) return dlsym(RTLD_DEFAULT, name.erase(any, 4).c_str());
  for (const char *type : values::kNames) {
    const std::string suffix = std::string("_") + type;
    if (name.size() > suffix.size() && name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
      return dlsym(RTLD_DEFAULT, name.insert(name.size() - suffix.size(), "_any").c_str());
  }
  return nullptr;
}

// What a kernel does and how it is launched follows from its name.
static Kernel classify(const std::string &name) {
  Kernel k{name, kCopy, kAny, -1, entry(name), twin(name)};
  static const struct {
    const char *prefix;
    Coll coll;
  } kPrefixes[] = {{"shunt_all_reduce_delivered", kDelivered},
                   {"shunt_all_reduce", kAllReduce},
                   {"shunt_reduce_scatter_v", kReduceScatterV},
                   {"shunt_reduce_scatter", kReduceScatter},
                   {"shunt_reduce", kReduce},
                   {"shunt_broadcast", kBroadcast},
                   {"shunt_all_gather", kAllGather},
                   {"shunt_all_to_all_v", kAllToAllV},
                   {"shunt_all_to_all", kAllToAll},
                   {"shunt_barrier", kBarrier},
                   {"shunt_symmetric_begin", kSymmetric},
                   {"shunt_copy", kCopy},
                   {"shunt_signal", kSignals},
                   {"shunt_window_signal", kWindow}};
  bool found = false;
  for (const auto &p : kPrefixes)
    if (!found && name.rfind(p.prefix, 0) == 0) k.coll = p.coll, found = true;
  if (!found) fprintf(stderr, "nothing is known of kernel %s\n", name.c_str()), exit(2);
  if (k.coll == kAllReduce || k.coll == kReduce || k.coll == kReduceScatter || k.coll == kReduceScatterV ||
      k.coll == kDelivered)
    for (int t = 0; t < values::kTypes; t++)
      if (name.size() > strlen(values::kNames[t]) &&
          name.substr(name.size() - strlen(values::kNames[t]) - 1) == std::string("_") + values::kNames[t])
        k.type = t;
  if (k.coll >= kBarrier) k.grid = kOneWarp;
  if (k.coll == kCopy) k.grid = kAny;
  if (k.coll == kAllToAllV) k.grid = kPairs;
  if (has(name, "_direct") || has(name, "_staged") || has(name, "_chain")) k.grid = kAllThreads;
  if (k.coll == kBroadcast && k.grid == kAllThreads) k.grid = kFull;
  if (name.rfind("shunt_reduce_ll128", 0) == 0) k.grid = kReduceGrid;
  return k;
}

static int world;
static constexpr int64_t kGuard = 256, kBuffers = 24 << 20;
static shunt_watch watches[SHUNT_MAX_RANKS];
static bool aborted;
static int fenced;  // an argument of every kernel
static void abort_all() {
  aborted = true;
  for (shunt_watch &w : watches) w.abort = 1;
}

// A call as one rank makes it.
struct Part {
  std::vector<char> data;          // what it sends
  char *send, *recv;               // as it addresses them
  int64_t recv_at, recv_bytes;     // in its buffers
  std::vector<char> before, want;  // recv with its guards
  shunt_kernel_args_v args;
  shunt_kernel_args_on_device on_device;  // its base is that of args
  int64_t *arrays[4];                     // that it names
};
struct Call {
  Kernel kernel;
  int type, op, root, shift, recv_shift, blocks, threads;  // shifts: elements by which buffers miss alignment
  int64_t count;
  uint64_t timeout;  // of its waits, if not 0
  bool uneven;  // rank r's shifts are r + 1 times those
  bool in_place, reachable, spread;
  bool reversed;  // messages lie in memory in the order of ranks, the last one first
  // Where the ends of a message differ: its ranks, and what each says of its elements. A
  // broadcast or reduce is one message, of which to is the rank that differs.
  int from = -1, to = -1;
  int64_t said, expected;
  int what = 0;  // what that is: its bytes, or its op, dtype, collective or root
  int budget = SHUNT_MAX_BLOCKS;  // the most blocks of a kernel whose grid is not random
  unsigned seed;  // of its data and, where lengths differ, of who sends how much
  std::vector<Part> parts;
  std::string text() const {
    char s[256];
    snprintf(s, sizeof s, "%s %s %s count %lld shift %d and %d%s%s%s%s grid %dx%d root %d", kernel.name.c_str(),
             values::kNames[type], values::kOps[op], (long long)count, shift, recv_shift, uneven ? " uneven" : "",
             in_place ? " in place" : "", reachable ? "" : " unreachable", spread ? " spread" : "", blocks, threads,
             root);
    return s;
  }
};

static bool on_device(const Call &c) { return has(c.kernel.name, "_on_device"); }

static int64_t used[SHUNT_MAX_RANKS];

// Where in a rank's memory its buffers begin, and an export of theirs; both differ
// from rank to rank.
static int64_t buffers_at(int r) { return (SHUNT_REGION_BYTES(world) + 65535) / 65536 * 65536 + r * 4096; }
static int export_of(int r) { return (r * 3 + 1) % SHUNT_MAX_EXPORTS; }

static char *take(int r, int64_t bytes) {
  char *p = emulate::memory(r, r) + buffers_at(r) + used[r];
  used[r] += (bytes + 255) / 256 * 256;
  if (used[r] > kBuffers) fprintf(stderr, "too many bytes\n"), exit(2);
  return p;
}

// What rank i sends to rank j, as rank r sees it.
static int64_t pair_count(const Call &c, int i, int j, int r) {
  if (c.kernel.coll == kReduceScatterV) return (r == c.to ? c.expected : c.count) * ((j * 7 + c.seed) % 4) / 3;
  if (i == c.from && j == c.to) return r == j ? c.expected : c.said;
  return c.count * ((i * 7 + j * 2 + c.seed) % 4) / 3;
}

// Where a rank's message to or from a peer begins, in elements of its buffer.
static int64_t displ_of(const Call &c, int rank, int peer, bool sends) {
  int64_t at = 0;
  const bool reversed = c.reversed != (c.kernel.coll == kReduceScatterV && rank % 2);  // displacements are a rank's own
  for (int s = reversed ? peer + 1 : 0; s < (reversed ? world : peer); s++)
    at += sends ? pair_count(c, rank, s, rank) : pair_count(c, s, rank, rank);
  return at;
}

// A rank's counts and displacements as it has them in its memory.
static void put_on_device(Call &c, int r) {
  Part &p = c.parts[r];
  const int64_t size = values::kBytes[c.type];
  const shunt_messages &m = p.args.messages;
  const int64_t *from[4] = {m.send_count, m.send_displ, m.recv_count, m.recv_displ};
  for (int i = 0; i < 4; i++) {
    p.arrays[i] = reinterpret_cast<int64_t *>(take(r, world * 8));
    for (int s = 0; s < world; s++) p.arrays[i][s] = from[i][s] / size;
  }
  const bool packed = !c.reversed && (c.seed + r) % 2;
  auto address = [&](int i) { return uint64_t(p.arrays[i]); };
  p.on_device = {p.args.base, address(0), packed ? 0 : address(1), address(2), packed ? 0 : address(3), size,
                 c.count * world, c.count * world};
}

// How many blocks a rank wishes for, as kernels/width.cuh has it: mostly what the others do.
static int wish(const Call &c, int r) {
  if (c.seed % 4 == 0) return 0;  // nothing is agreed
  return 1 + (c.seed % 4 == 1 ? c.seed / 4 + r : c.seed / 4) % (SHUNT_MAX_BLOCKS + 1);
}

static void prepare(Call &c, unsigned seed) {
  c.seed = seed;
  const int size = values::kBytes[c.type];
  const Coll coll = c.kernel.coll;
  const bool many_in = coll == kReduceScatter || coll == kReduceScatterV || coll == kAllToAll || coll == kAllToAllV;
  const bool many_out = coll == kAllGather || coll == kAllToAll || coll == kAllToAllV;
  const int64_t send_n = c.count * (many_in ? world : 1), recv_n = c.count * (many_out ? world : 1);
  std::vector<double> factor(world);
  c.parts.resize(world);
  for (int r = 0; r < world; r++) {
    Part &p = c.parts[r];
    factor[r] = c.type < 6 ? r + 2 : 0.5 + r * 0.37;
    p.data.resize(send_n * size + 8);
    values::generate(c.type, r, send_n, seed, p.data.data());
  }
  for (int r = 0; r < world; r++) {
    Part &p = c.parts[r];
    const int times = c.uneven ? r + 1 : 1;
    p.send = take(r, send_n * size + 2 * kGuard + 32 * size) + kGuard + c.shift * times % 16 * size;
    p.recv = take(r, recv_n * size + 2 * kGuard + 32 * size) + kGuard + c.recv_shift * times % 16 * size;
    if (c.in_place) {
      if (coll == kAllGather) p.send = p.recv + c.count * size * r;
      else if (coll == kReduceScatter) p.recv = p.send + c.count * size * r;
      else if (coll == kReduceScatterV) p.recv = p.send + displ_of(c, r, r, true) * size;
      else p.recv = p.send;
    }
    p.recv_bytes = recv_n * size;
    memset(p.recv - kGuard, 0xA5, recv_n * size + 2 * kGuard);
    memcpy(p.send, p.data.data(), send_n * size);
    p.before.assign(p.recv - kGuard, p.recv + recv_n * size + kGuard);
    p.want = p.before;
    char *out = p.want.data() + kGuard;
    std::vector<const char *> in(world);
    for (int64_t i = 0; i < c.count; i++) switch (coll) {
        case kReduce:
          if (r != c.root) break;
          [[fallthrough]];
        case kAllReduce:
        case kDelivered:
        case kReduceScatter:
          for (int s = 0; s < world; s++)
            in[s] = c.parts[s].data.data() + (coll == kReduceScatter ? r * c.count + i : i) * size;
          values::reduce(c.type, c.op, in, factor.data(), out + i * size);
          break;
        case kReduceScatterV:
          if (i >= pair_count(c, 0, r, r)) break;
          for (int s = 0; s < world; s++) in[s] = c.parts[s].data.data() + (displ_of(c, s, r, true) + i) * size;
          values::reduce(c.type, c.op, in, factor.data(), out + i * size);
          break;
        case kBroadcast:
          memcpy(out + i * size, c.parts[c.root].data.data() + i * size, size);
          break;
        case kAllGather:
          for (int s = 0; s < world; s++)
            memcpy(out + (s * c.count + i) * size, c.parts[s].data.data() + i * size, size);
          break;
        case kAllToAll:
          for (int s = 0; s < world; s++)
            memcpy(out + (s * c.count + i) * size, c.parts[s].data.data() + (r * c.count + i) * size, size);
          break;
        case kCopy:  // from the rank before
          out[i] = c.parts[(r + world - 1) % world].data[i];
          break;
        default:
          break;
      }
    shunt_kernel_args_v &v = p.args;
    shunt_kernel_args &a = v.base;
    v = {};
    a.send = uint64_t(p.send), a.recv = uint64_t(p.recv), a.bytes = c.count * size, a.scalar = factor[r];
    a.abort = uint64_t(&watches[r]), a.timeout = c.timeout;
    a.rank = r, a.world = world, a.fenced = fenced, a.op = c.op;
    const int collective = coll == kReduceScatterV ? SHUNT_CALL_REDUCE_SCATTER_V : 8 + coll;
    const bool rooted = coll == kReduce || coll == kBroadcast;
    a.what = collective << 11 | c.op << 7 | c.type << 3 | (rooted ? c.root : 0);
    a.root = has(c.kernel.name, "all_reduce_staged") ? wish(c, r) : c.root;
    if (c.from < 0 && r == c.to) switch (c.what) {
        case 0: a.bytes = c.expected * size; break;
        case 1: a.op = (a.op + 1) % 6, a.what = (a.what & ~(15 << 7)) | a.op << 7; break;
        case 2: a.what ^= 1 << 3; break;
        case 3: a.what ^= 31 << 11; break;
        default: a.root = (a.root + 1) % world, a.what = (a.what & ~7) | a.root;
      }
    for (int s = 0; s < world; s++) a.region[s] = uint64_t(emulate::memory(r, s));
    shunt_messages &m = v.messages;
    for (int s = 0; s < world; s++) {
      m.send_count[s] = pair_count(c, r, s, r) * size, m.send_displ[s] = displ_of(c, r, s, true) * size;
      m.recv_count[s] = pair_count(c, s, r, r) * size, m.recv_displ[s] = displ_of(c, r, s, false) * size;
      if (coll == kReduceScatterV) a.bytes = std::max(s == 0 ? 0 : a.bytes, m.send_count[s]);
      if (coll == kAllToAllV && (s != c.from || r != c.to))
        memcpy(out + m.recv_displ[s], c.parts[s].data.data() + displ_of(c, s, r, true) * size, m.recv_count[s]);
    }
    if (coll == kAllToAllV) put_on_device(c, r);
    if (coll == kSymmetric) a.send = 3, a.recv = 4096;
  }
  if (coll == kCopy)  // into the next rank's recv
    for (int r = 0; r < world; r++) {
      const int next = (r + 1) % world;
      c.parts[r].args.base.recv = uint64_t(c.parts[next].recv - emulate::memory(next, next) + emulate::memory(r, next));
    }
  if (coll == kWindow)  // a count of our own, and the semaphore at the next rank, or ours
    for (int r = 0; r < world; r++) {
      const int next = (r + 1) % world;
      char *sent = take(r, 64), *semaphore = take(r, 64);
      (void)semaphore;
      c.parts[r].args.base.send = uint64_t(sent);
      c.parts[r].args.base.recv =
          uint64_t(sent - emulate::memory(r, r) - buffers_at(r) + 256 + emulate::memory(r, next) + buffers_at(next));
    }
}

static int64_t bad;

// Compares what a rank has received, when its call has ended and once more when
// everything has.
static void compare(const Call &c, int r, const char *when) {
  const Part &p = c.parts[r];
  const char *is = p.recv - kGuard;
  const int64_t size = values::kBytes[c.type], n = p.want.size();
  for (int64_t i = 0; i < n; i += size) {
    const bool guard = i < kGuard || i + size > n - kGuard;
    if (memcmp(is + i, p.want.data() + i, std::min(size, n - i)) == 0 ||
        (!guard && c.kernel.type >= 0 && values::same(c.type, is + i, p.want.data() + i)))
      continue;
    bad++;
    printf("WRONG %s: rank %d from byte %lld%s\n", c.text().c_str(), r, (long long)(i - kGuard), when);
    return;
  }
}

static bool has_fault(int r) {
  return reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT)->kind != SHUNT_FAULT_NONE;
}

static emulate::Launch launch(const Call &c, int r, const std::string &name, void *f) {
  const Part &p = c.parts[r];
  const bool reachable = c.reachable;
  return {name,
          c.blocks,
          c.threads,
          [=] {
            shunt_export *e =
                reinterpret_cast<shunt_export *>(emulate::memory(r, r) + SHUNT_OFF_EXPORTS) + export_of(r);
            e->known = reachable ? ~0ull : 0;
          },
          [f, &p, v = c.kernel.coll == kAllToAllV || c.kernel.coll == kReduceScatterV, d = has(name, "_on_device")] {
            if (d)
              reinterpret_cast<void (*)(shunt_kernel_args_on_device)>(f)(p.on_device);
            else if (v)
              reinterpret_cast<void (*)(shunt_kernel_args_v)>(f)(p.args);
            else
              reinterpret_cast<void (*)(shunt_kernel_args)>(f)(p.args.base);
          },
          // What a put has brought is there for who has waited for a signal only; see check.cc.
          [&c, r] {
            if (c.kernel.coll != kCopy && !aborted && c.to < 0 && !has_fault(r)) compare(c, r, "");
          },
          {},
          c.spread,
          c.kernel.coll == kCopy};
}
