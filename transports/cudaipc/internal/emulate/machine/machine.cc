// machine.cc: kernels, their threads, and which one runs next.
#include "machine.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "layout.h"
#include "state.h"

namespace emulate {

const Place *place;
Policy policy;
Thread *current;
int64_t turns;
bool moved;

namespace {

std::mt19937_64 random_bits;
Fiber scheduler;
std::vector<std::unique_ptr<Grid>> grids;  // of each stream, the one that runs
std::vector<int> calls;  // of each rank, the highest Launch::call that has begun
int ranks;
std::vector<Warp *> warps;  // of all grids that run

}  // namespace

uint64_t below(uint64_t n) { return random_bits() % n; }

// Leaves the current thread until the scheduler runs it again.
void leave() {
  Thread *t = current;
  settle(t->writer);
  if (is_deep(t->fiber)) fail("needs a larger stack");
  switch_fiber(t->fiber, scheduler);
}

bool changed(const Thread &t) {
  for (const Load &l : t.history)
    if (memcmp(l.from, l.value, l.bytes) != 0) return true;
  return false;
}

// All of a barrier are there: each knows what the others have stored, and whether one of
// them knows of a fault.
void release_barrier(Block &b, int id) {
  moved = true;
  b.joined[id] = 0;
  const bool said = b.said[id];
  b.said[id] = false;
  bool lost = false;
  for (auto &w : b.warps)
    for (auto &t : w->lanes) lost = lost || (t->state == Thread::kJoining && t->barrier == id && t->writer.lost);
  for (auto &w : b.warps) {
    bool all = false;
    for (auto &t : w->lanes)
      if (t->state == Thread::kJoining && t->barrier == id) {
        t->state = Thread::kReady;
        t->not_before = turns + 1;
        t->result = said;
        t->writer.lost = t->writer.lost || lost;
        move_stores(t->writer.pending, b.known);
        all = true;
      }
    if (all) move_stores(w->known, b.known);
  }
}

namespace {

std::string who(const Thread *t) {
  char text[256];
  const Grid *g = t->warp->block->grid;
  snprintf(text, sizeof text, "rank %d block %d thread %u of %s", g->rank, t->warp->block->number, t->place.thread.x,
           g->launch->name.c_str());
  return text;
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

bool runnable(Thread &t) {
  switch (t.state) {
    case Thread::kReady: return t.not_before <= turns;
    case Thread::kParked: return changed(t) || t.seen != t.warp->progress;
    default: return false;
  }
}

// The next block of a grid finds a place.
void begin_block(Grid &g) {
  if (g.begun < int(g.blocks.size())) g.blocks[g.begun++]->begun = true;
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
  begin_block(*b.grid);
}

bool run_warp(Warp &w) {
  if (!w.block->begun) return false;
  if (w.parked) {
    for (auto &t : w.lanes)
      if (changed(*t)) w.parked = false;
    if (w.parked) return false;
    // What changed may be nothing that they look at ever again.
    for (auto &t : w.lanes) t->repeats = false, t->history.clear();
  }
  const int first = int(below(kWarp));
  if (policy.line < 128) w.late = int(below(2 * 128 / policy.line));
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

void start(size_t stream, int rank, const Launch &launch) {
  if (launch.before) launch.before();
  calls[rank] = std::max(calls[rank], launch.call);
  auto grid = std::make_unique<Grid>();
  grid->rank = rank;
  grid->launch = &launch;
  const int columns = launch.spread ? 2 : 1;
  grid->live = launch.blocks * columns;
  // In one launch of four a block runs only when nothing else can.
  const int laggard = policy.park && below(4) == 0 ? int(below(launch.blocks * columns)) : -1;
  for (int b = 0; b < launch.blocks * columns; b++) {
    auto block = std::make_unique<Block>();
    block->grid = grid.get();
    block->number = b;
    block->live = launch.threads;
    block->lags = b == laggard;
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
      thread->place = {
          {unsigned(t), 0, 0}, {unsigned(b), 0, 0}, {unsigned(launch.threads), 1, 1}, {unsigned(launch.blocks), 1, 1}};
      if (launch.spread)
        thread->place.block = {unsigned(b % 2), unsigned(b / 2), 0},
        thread->place.grid_size = {2, unsigned(launch.blocks), 1};
      thread->writer.rank = rank;
      thread->writer.engine = launch.engine;
      thread->writer.lost =
          reinterpret_cast<const shunt_fault *>(memory(rank, rank) + SHUNT_OFF_FAULT)->kind != SHUNT_FAULT_NONE;
      thread->writer.known[0] = &w->known;
      thread->writer.known[1] = &block->known;
      make_fiber(thread->fiber, body);
      w->live++;
      w->lanes.push_back(std::move(thread));
    }
    grid->blocks.push_back(std::move(block));
  }
  const int places = policy.resident > 0 ? policy.resident : int(grid->blocks.size());
  for (int i = 0; i < places; i++) begin_block(*grid);
  grids[stream] = std::move(grid);
}

// A kernel's end makes nothing of what it stored at peers visible: a fence of a thread
// of the next kernel may wait for its own stores alone.
void finish(size_t stream) {
  if (grids[stream]->launch->after) grids[stream]->launch->after();
  for (auto &b : grids[stream]->blocks)
    for (auto &w : b->warps) warps.erase(std::find(warps.begin(), warps.end(), w.get()));
  grids[stream].reset();
}

// Names those who wait for a word first: the others wait for them.
void tell_waiting() {
  constexpr int kMost = 40;
  int told = 0;
  for (bool words : {true, false})
    for (Warp *w : warps)
      for (auto &t : w->lanes) {
        if (t->state == Thread::kEnded || !w->block->begun || words != (t->waits && t->state != Thread::kJoining))
          continue;
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
  ranks = world;
  map_memory(world, bytes, p.stores != Policy::kAtOnce, p.converged, p.line);
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

void run(const std::vector<std::vector<Launch>> &streams, std::function<bool()> done) {
  std::vector<size_t> next(streams.size());
  grids.resize(streams.size());
  calls.assign(ranks, -1);
  size_t turn_of = 0, idle = 0;
  int kicks = 0;
  for (;;) {
    bool left = false;
    for (size_t r = 0; r < streams.size(); r++) {
      if (grids[r] && grids[r]->live == 0) finish(r);
      if (!grids[r] && next[r] < streams[r].size() && (!streams[r][next[r]].ready || streams[r][next[r]].ready())) {
        start(r, int(r) % ranks, streams[r][next[r]++]);
        shuffle_weights();
      }
      left = left || grids[r];
    }
    if (!left) break;
    if (done && done()) done = nullptr;
    turns++;
    if (turns > policy.turns) {
      tell_waiting();
      fail("no end in sight");
    }
    Warp *const next = next_warp(turn_of);
    const bool ran = !next->block->lags && run_warp(*next);
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
    for (size_t i = 0; i < warps.size() && !any; i++) any = !warps[i]->block->lags && run_warp(*warps[i]);
    if (any) continue;
    if (drain_some(1ull << below(8), random_bits)) {
      kicks = 0;
      continue;
    }
    for (size_t i = 0; i < warps.size() && !any; i++) any = run_warp(*warps[i]);
    if (any) continue;
    if (kicks++ < 4) {
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

bool all_have_begun(int call) {
  return std::all_of(calls.begin(), calls.end(), [&](int c) { return c >= call; });
}

Count count() { return {turns, held_back(), outside_loads(), bytes_in_vectors(), bytes_in_pieces()}; }

}  // namespace emulate
