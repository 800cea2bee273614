// machine.cc: fibers, warps, blocks and who runs next.
#include "machine.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>

#include "cuda.h"
#include "fiber.h"
#include "memory.h"

namespace emulate {

const Place *place;

namespace {

constexpr int kWarp = 32, kBarriers = 16;
constexpr size_t kSharedBytes = 1 << 16;
constexpr int64_t kMostTurns = 20000000;

struct Block;
struct Warp;

struct Load {
  const char *from;
  int bytes;
  char value[16];
};

struct Thread {
  enum State { kReady, kVoting, kJoining, kParked, kEnded } state = kReady;
  Place place;
  Warp *warp;
  int lane;
  Fiber fiber;
  int64_t not_before = 0;     // turn from which it may run
  bool repeats = false;       // its last load has told it nothing new
  std::vector<Load> history;  // since it last changed anything
  u64 seen = 0;               // the warp's progress when it was parked
  const void *waits = nullptr;
  u64 result = 0;
  int barrier = 0;
  Writer writer;
};

struct Warp {
  Block *block;
  std::vector<std::unique_ptr<Thread>> lanes;
  int live = 0, voting = 0;
  Vote kind;
  u64 value[kWarp];
  int argument[kWarp];
  u64 progress = 0;
  bool parked = false;  // has voted on what no thread of it has news about
  int weight = 1;
  Stores known;  // stores that every thread of the warp knows of
};

struct Grid;

struct Block {
  Grid *grid;
  int number, live = 0;
  std::vector<std::unique_ptr<Warp>> warps;
  int joined[kBarriers] = {}, expected[kBarriers] = {};
  std::unique_ptr<char[]> shared{new char[kSharedBytes]};
  size_t shared_used = 16;
  std::map<const void *, void *> variables;
  std::map<u32, Stores> released;  // by shared address
  Stores known;
};

struct Grid {
  int rank, live = 0;
  const Launch *launch;
  std::vector<std::unique_ptr<Block>> blocks;
};

Policy policy;
std::mt19937_64 random_bits;
Thread *current;
Fiber scheduler;
int64_t turns;
std::vector<std::unique_ptr<Grid>> grids;  // of each rank, the one that runs
std::vector<Warp *> warps;
bool moved;  // something has happened that may let others go on

uint64_t below(uint64_t n) { return random_bits() % n; }

std::string who(const Thread *t) {
  char text[256];
  const Grid *g = t->warp->block->grid;
  snprintf(text, sizeof text, "rank %d block %d thread %u of %s", g->rank, t->warp->block->number, t->place.thread.x, g->launch->name.c_str());
  return text;
}

// Leaves the current thread until the scheduler runs it again.
void leave() {
  Thread *t = current;
  settle(t->writer);
  switch_fiber(t->fiber, scheduler);
}

[[noreturn]] void ended() {
  Thread *t = current;
  settle(t->writer);
  t->state = Thread::kEnded;
  switch_fiber(t->fiber, scheduler);
  abort();
}

void body() {
  current->warp->block->grid->launch->body();
  ended();
}

bool changed(const Thread &t) {
  for (const Load &l : t.history)
    if (memcmp(l.from, l.value, l.bytes) != 0) return true;
  return false;
}

bool runnable(Thread &t) {
  switch (t.state) {
    case Thread::kReady: return t.not_before <= turns;
    case Thread::kParked: return changed(t) || t.seen != t.warp->progress;
    default: return false;
  }
}

void release_barrier(Block &b, int id) {
  moved = true;
  b.joined[id] = 0;
  for (auto &w : b.warps) {
    bool all = false;
    for (auto &t : w->lanes)
      if (t->state == Thread::kJoining && t->barrier == id) {
        t->state = Thread::kReady;
        t->not_before = turns + 1;
        move_stores(t->writer.pending, b.known);
        all = true;
      }
    if (all) move_stores(w->known, b.known);
  }
}

void end_thread(Thread &t) {
  Warp &w = *t.warp;
  Block &b = *w.block;
  moved = true;
  release_stack(t.fiber);
  if (w.voting > 0) fail(who(&t) + " has ended while others of its warp vote");
  w.live--;
  if (--b.live > 0) {
    for (int id = 0; id < kBarriers; id++)
      if (b.joined[id] > 0 && b.expected[id] == 0 && b.joined[id] == b.live) release_barrier(b, id);
    return;
  }
  b.grid->live--;
}

bool run_warp(Warp &w) {
  if (w.parked) {
    for (auto &t : w.lanes)
      if (changed(*t)) w.parked = false;
    if (w.parked) return false;
    for (auto &t : w.lanes) t->repeats = false;
  }
  const int first = int(below(kWarp));
  bool ran = false;
  for (int i = 0; i < int(w.lanes.size()); i++) {
    Thread &t = *w.lanes[(i + first) % w.lanes.size()];
    if (!runnable(t)) continue;
    ran = true;
    t.state = Thread::kReady;
    current = &t;
    place = &t.place;
    set_writer(&t.writer);
    switch_fiber(scheduler, t.fiber);
    set_writer(nullptr);
    if (t.state == Thread::kEnded) end_thread(t);
    if (t.state == Thread::kVoting || t.state == Thread::kJoining || t.state == Thread::kEnded) w.progress++;
  }
  current = nullptr;
  end_turn();
  return ran;
}

void start(int rank, const Launch &launch) {
  if (launch.before) launch.before();
  auto grid = std::make_unique<Grid>();
  grid->rank = rank;
  grid->launch = &launch;
  grid->live = launch.blocks;
  for (int b = 0; b < launch.blocks; b++) {
    auto block = std::make_unique<Block>();
    block->grid = grid.get();
    block->number = b;
    block->live = launch.threads;
    memset(block->shared.get(), 0xCD, kSharedBytes);
    for (int t = 0; t < launch.threads; t++) {
      if (t % kWarp == 0) {
        block->warps.push_back(std::make_unique<Warp>());
        block->warps.back()->block = block.get();
        warps.push_back(block->warps.back().get());
      }
      Warp *w = block->warps.back().get();
      auto thread = std::make_unique<Thread>();
      thread->warp = w;
      thread->lane = t % kWarp;
      thread->place = {{unsigned(t), 0, 0}, {unsigned(b), 0, 0}, {unsigned(launch.threads), 1, 1}, {unsigned(launch.blocks), 1, 1}};
      thread->writer.rank = rank;
      thread->writer.known[0] = &w->known;
      thread->writer.known[1] = &block->known;
      make_fiber(thread->fiber, body);
      w->live++;
      w->lanes.push_back(std::move(thread));
    }
    grid->blocks.push_back(std::move(block));
  }
  grids[rank] = std::move(grid);
}

// A kernel's end makes all that it stored visible.
void finish(int rank) {
  drain_rank(rank);
  if (grids[rank]->launch->after) grids[rank]->launch->after();
  for (auto &b : grids[rank]->blocks)
    for (auto &w : b->warps) warps.erase(std::find(warps.begin(), warps.end(), w.get()));
  grids[rank].reset();
}

// Names those who wait for a word first: the others wait for them.
void tell_waiting() {
  constexpr int kMost = 40;
  int told = 0;
  for (bool words : {true, false})
    for (Warp *w : warps)
      for (auto &t : w->lanes) {
        if (t->state == Thread::kEnded || words != (t->waits && t->state != Thread::kJoining)) continue;
        std::string what = "nothing known";
        if (words) what = describe(t->waits);
        else if (t->state == Thread::kJoining) what = "barrier " + std::to_string(t->barrier);
        else if (t->state == Thread::kVoting) what = "the others of its warp";
        if (told++ < kMost) fprintf(stderr, "%s waits for %s\n", who(t.get()).c_str(), what.c_str());
        if (t->state != Thread::kParked) break;  // one of a warp is enough
      }
  if (told > kMost) fprintf(stderr, "and %d more\n", told - kMost);
}

void shuffle_weights() {
  for (Warp *w : warps) {
    static const int kWeights[] = {1, 8, 64};
    w->weight = kWeights[below(3)];
  }
}

Warp *next_warp(size_t &turn_of) {
  switch (policy.order) {
    case Policy::kInTurn:
      return warps[turn_of++ % warps.size()];
    case Policy::kRandom:
      return warps[below(warps.size())];
    default:
      if (turns % 4096 == 0) shuffle_weights();
      for (;;) {
        Warp *w = warps[below(warps.size())];
        if (below(64) < uint64_t(w->weight)) return w;
      }
  }
}

}  // namespace

static void crashed(int, siginfo_t *info, void *) {
  if (current) fprintf(stderr, "%s has touched %p\n", who(current).c_str(), info->si_addr);
  _exit(4);
}

void fail(const std::string &what) {
  fflush(stdout);
  fprintf(stderr, "%s%s%s\n", current ? who(current).c_str() : "", current ? ": " : "", what.c_str());
  _exit(4);
}

void setup(int world, size_t bytes, uint64_t seed, Policy p) {
  policy = p;
  random_bits.seed(seed);
  grids.resize(world);
  map_memory(world, bytes, p.stores != Policy::kAtOnce, p.converged);
  static char stack[1 << 16];
  stack_t s{};
  s.ss_sp = stack, s.ss_size = sizeof stack;
  sigaltstack(&s, nullptr);
  struct sigaction action {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void run(const std::vector<std::vector<Launch>> &streams, int64_t turn, std::function<void()> then) {
  std::vector<size_t> next(streams.size());
  size_t turn_of = 0, idle = 0;
  int kicks = 0;
  for (;;) {
    bool left = false;
    for (size_t r = 0; r < streams.size(); r++) {
      if (grids[r] && grids[r]->live == 0) finish(int(r));
      if (!grids[r] && next[r] < streams[r].size()) {
        start(int(r), streams[r][next[r]++]);
        shuffle_weights();
      }
      left = left || grids[r];
    }
    if (!left) break;
    if (turns >= turn && then) then(), then = nullptr;
    turns++;
    if (turns > kMostTurns) {
      tell_waiting();
      fail("no end in sight");
    }
    const bool ran = run_warp(*next_warp(turn_of));
    if (policy.stores == Policy::kSoon && below(2) == 0) drain_some(1 + below(8), random_bits);
    if (policy.stores == Policy::kLate && below(16) == 0) drain_some(1 + below(2), random_bits);
    if (moved) moved = false, kicks = 0;
    if (ran) {
      idle = 0;
      continue;
    }
    if (++idle < warps.size() / 4) continue;
    // Perhaps nobody can run: then all are asked, and stores under way arrive.
    idle = 0;
    turns++;
    bool any = false;
    for (size_t i = 0; i < warps.size() && !any; i++) any = run_warp(*warps[i]);
    if (any) continue;
    if (drain_some(1ull << below(8), random_bits)) {
      kicks = 0;
    } else if (kicks++ < 4) {
      for (Warp *w : warps) {
        w->parked = false;
        for (auto &t : w->lanes) {
          t->repeats = false;
          if (t->state == Thread::kParked) t->state = Thread::kReady, t->not_before = 0;
        }
      }
    } else {
      fflush(stdout);
      fprintf(stderr, "nobody can go on:\n");
      tell_waiting();
      _exit(3);
    }
  }
  drain_some(~0ull, random_bits);
  current = nullptr;
}

Count count() { return {turns, held_back()}; }

// ---- what threads call --------------------------------------------------------

// Parks the thread when it looks again at what has not changed, nor anything else
// that it has looked at since it last changed something.
void before_load(const void *p, int bytes) {
  Thread *t = current;
  const char *from = static_cast<const char *>(p);
  for (const Load &l : t->history)
    if (l.from == from && l.bytes == bytes) {
      if (changed(*t)) break;
      t->waits = p;
      if (policy.park) {
        t->state = Thread::kParked;
        t->seen = t->warp->progress;
      } else {
        t->not_before = turns + 1;
      }
      leave();
      t->history.clear();
      t->repeats = false;
      return;
    }
  if (below(8) == 0) pause();
}

void after_load(const void *p, int bytes) {
  Thread *t = current;
  if (t->history.size() >= 64) t->history.clear();
  Load l{static_cast<const char *>(p), bytes, {}};
  memcpy(l.value, p, bytes);
  t->repeats = false;
  t->waits = p;
  for (Load &before : t->history)
    if (before.from == l.from && before.bytes == bytes) {
      t->repeats = memcmp(before.value, l.value, bytes) == 0;
      before = l;
      return;
    }
  t->history.push_back(l);
}

// Something visible has changed, by the thread that runs if one does.
void changes() {
  moved = true;
  if (!current) return;
  current->history.clear();
  current->repeats = false;
  current->waits = nullptr;
}

void pause() {
  current->not_before = turns + 1;
  leave();
}

u64 vote(Vote kind, u64 value, int argument) {
  Thread *t = current;
  Warp &w = *t->warp;
  if (w.voting == 0) w.kind = kind;
  if (w.kind != kind) fail("another vote than that of its warp");
  w.value[t->lane] = value;
  w.argument[t->lane] = argument;
  t->state = Thread::kVoting;
  if (++w.voting == int(w.lanes.size())) {
    u64 any = 0, all = 1, ballot = 0, bits = 0;
    for (size_t i = 0; i < w.lanes.size(); i++) {
      any |= w.value[i] != 0, all &= w.value[i] != 0, bits |= w.value[i];
      ballot |= u64(w.value[i] != 0) << i;
    }
    settle(t->writer);
    for (size_t i = 0; i < w.lanes.size(); i++) {
      Thread &other = *w.lanes[i];
      switch (kind) {
        case Vote::kAny: other.result = any; break;
        case Vote::kAll: other.result = all; break;
        case Vote::kBallot: other.result = ballot; break;
        case Vote::kOr: other.result = bits; break;
        case Vote::kShuffle: other.result = w.value[w.argument[i] & (kWarp - 1)]; break;
        case Vote::kShuffleXor: other.result = w.value[(i ^ w.argument[i]) & (kWarp - 1)]; break;
        case Vote::kSync: move_stores(other.writer.pending, w.known); break;
      }
      other.state = Thread::kReady;
      other.not_before = turns + 1;
    }
    w.voting = 0;
    w.progress++;
    w.parked = policy.park;
    for (auto &other : w.lanes) w.parked = w.parked && other->repeats;
  }
  leave();
  return t->result;
}

void join(int id, int threads) {
  Thread *t = current;
  Block &b = *t->warp->block;
  if (b.joined[id] == 0) b.expected[id] = threads;
  if (b.expected[id] != threads) fail("another number of threads at barrier " + std::to_string(id));
  t->history.clear();
  t->state = Thread::kJoining;
  t->barrier = id;
  settle(t->writer);
  if (++b.joined[id] == (threads ? threads : b.live)) release_barrier(b, id);
  leave();
}

void *shared(const void *variable, size_t bytes, size_t alignment) {
  Block &b = *current->warp->block;
  void *&p = b.variables[variable];
  if (!p) {
    b.shared_used = (b.shared_used + alignment - 1) / alignment * alignment;
    p = b.shared.get() + b.shared_used;
    b.shared_used += bytes;
    if (b.shared_used > kSharedBytes) fail("too much shared memory");
  }
  return p;
}

u32 shared_address(const void *p) { return u32(static_cast<const char *>(p) - current->warp->block->shared.get()); }

namespace ptx {

static u32 *shared_word(u32 address) { return reinterpret_cast<u32 *>(current->warp->block->shared.get() + address); }

// What the thread knows of becomes known to whoever acquires.
static void release_at(u32 address) {
  Block &b = *current->warp->block;
  settle(current->writer);
  Stores &to = b.released[address];
  copy_stores(current->writer.pending, to);
  copy_stores(current->warp->known, to);
  copy_stores(b.known, to);
}
static void acquire_at(u32 address) {
  auto &released = current->warp->block->released;
  auto found = released.find(address);
  if (found != released.end()) copy_stores(found->second, current->writer.pending);
}

void atom_acquire_cta_shared_or_b32(u32 &v, u32 address, u32) {
  before_load(shared_word(address), 4);
  v = *shared_word(address);
  after_load(shared_word(address), 4);
  acquire_at(address);
}
void atom_release_cta_shared_exch_b32(u32 address, u32 v) {
  release_at(address);
  *shared_word(address) = v;
  changes();
}
void atom_acq_rel_cta_shared_add_u32(u32 &before, u32 address, u32 v) {
  acquire_at(address);
  release_at(address);
  before = *shared_word(address);
  *shared_word(address) += v;
  changes();
}

void mov_u64_globaltimer(u64 &t) { t = u64(turns) * 100; }

}  // namespace ptx
}  // namespace emulate
