// state.h: threads, warps, blocks and grids, for machine.cc and threads.cc.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda.h"
#include "fiber.h"
#include "machine.h"
#include "memory.h"

namespace emulate {

constexpr int kWarp = 32, kBarriers = 16;
constexpr size_t kSharedBytes = 1 << 16;

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
  int late = 0;  // where lines arrive in pieces: the piece of each that this turn does not load
  Stores known;  // stores that every thread of the warp knows of
};

struct Grid;

struct Block {
  Grid *grid;
  int number, live = 0;
  bool begun = false;
  bool lags = false;   // runs only when nothing else can
  bool behind = false;  // has waited for the end of the kernel before
  bool early = false;  // has let the next kernel begin before all ranks had begun this call
  std::vector<std::unique_ptr<Warp>> warps;
  int joined[kBarriers] = {}, expected[kBarriers] = {};
  bool said[kBarriers] = {};
  std::unique_ptr<char[]> shared{new char[kSharedBytes]};
  size_t shared_used = 16;
  std::map<const void *, void *> variables;
  std::map<u32, Stores> released;  // by shared address
  std::set<u32> lost;              // shared addresses that a thread has released which knows of its rank's fault
  Stores known;
};

struct Grid {
  int rank, live = 0, begun = 0;  // blocks that have not ended, and that have begun
  const Launch *launch;
  std::vector<std::unique_ptr<Block>> blocks;
};

extern Policy policy;
extern Thread *current;  // that runs; none while the scheduler does
extern int64_t turns;
extern bool moved;  // something has happened that may let others go on

bool all_have_begun(int call);
uint64_t below(uint64_t n);
void leave();  // the current thread, until the scheduler runs it again
bool changed(const Thread &t);
void release_barrier(Block &b, int id);

}  // namespace emulate
