// machine.h: some GPUs in one process. Every CUDA thread is a fiber, and one OS
// thread runs all fibers of all ranks, so a seed decides everything.
//
// A warp has a turn: each of its threads that can runs until it meets the others
// (votes, barriers) or looks at a word that has not changed since it last looked.
// Which warp is next, the seed says. Within a turn no other warp runs, so what a
// warp loads or stores with one instruction happens at once, as the LL128
// protocol needs of a line; and a thread's plain stores into its own region are
// seen by the others of its warp when the turn is over, as where a warp runs
// converged. Policy::converged = false shows which kernels rely on that.
//
// What a thread stores into memory of another rank stays with it and becomes
// visible later, in any order but for stores to the same place, unless a fence
// comes between: its own, or that of a thread which knows of the store by a
// barrier, __syncwarp or a release and acquire in shared memory. So a fence that
// is missing shows. Loads take effect in order: an acquire that is missing does
// not show, nor what L1 still holds, nor the order of stores within a GPU.
//
// A thread that has seen its rank's fault, or has met one that has (in a vote, at a
// barrier, by a release and acquire in shared memory), or whose kernel began behind it,
// must not load or store memory of another rank: a kernel that has given up a wait
// publishes nothing. What other threads do is their own affair: they have waited for
// what they needed.
//
// When nothing can run and no store is under way, those who wait are named. Memory
// that an instruction needs aligned must be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace emulate {

// How the next warp and the next store to become visible are chosen.
struct Policy {
  enum Order { kInTurn, kRandom, kSkewed } order = kInTurn;
  // kAtOnce holds nothing back; kLast makes stores visible only when nothing else
  // can happen.
  enum Stores { kAtOnce, kSoon, kLate, kLast } stores = kAtOnce;
  bool park = true;  // threads that wait for a word are not run until it changes; and now and then a block is not until
                     // nobody else can
  bool converged = true;
  int resident = 0;  // blocks of a grid that run at once, the next one when one has ended; 0: all
  int line = 128;    // bytes that a warp's stores of lines reach a peer in: NVLink's 128, or the 32 that PCIe may tear
                     // them into; pieces of a line are then loaded apart too
  int64_t turns = 0;  // after so many there is no end in sight
};

struct Launch {
  std::string name;
  int blocks, threads;  // blocks of a row
  std::function<void()> before;  // on the stream, when the launch before it has ended
  std::function<void()> body;    // what every thread runs
  std::function<void()> after;   // on the stream, when it has ended
  std::function<bool()> ready;   // whether another stream of the rank has come far enough, if any must
  bool spread = false;           // the blocks are the rows of two columns
  bool engine = false;           // it stands for a copy engine
  int call = -1;                 // the number of a call in which every rank waits for all others
};

// Parts of regions that are not there: a bit for LL128, CHANNEL and STAGING.
void leave_out(unsigned parts);

// Maps memory of `bytes` for every rank, zero-filled.
void setup(int world, size_t bytes, uint64_t seed, Policy policy);

// A rank's memory as another rank (or itself) addresses it: each has addresses of
// its own for it, and uses no other's.
char *memory(int viewer, int owner);

// Runs launches, those of a stream one after the other; stream i is one of rank i mod
// the number of ranks, all of which have as many. The last argument, if any, runs every
// turn until it is done. Ends the process with status 3 when nobody can go on.
void run(const std::vector<std::vector<Launch>> &streams, std::function<bool()> done = [] { return true; });

// Turns taken, stores that were held back, and the kernels' own loads from elsewhere than the ranks' memory: from the
// watch pages.
struct Count {
  int64_t turns, stores, looks, vectors, pieces;
};
Count count();

}  // namespace emulate
