// memory.h: the ranks' memory, and stores that are under way to it.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace emulate {

struct Store;
typedef std::vector<Store *> Stores;

// A plain store that has just been made: undone and held back when its thread
// leaves, because only then its value is known.
struct Fresh {
  char *to;
  int bytes;
  char old[16];
};

// What a thread has stored and others may not see yet.
struct Writer {
  int rank = 0;
  bool engine = false;  // a copy engine, which nobody can stop
  bool lost = false;    // knows that its rank has given up a wait: it may not touch memory of peers
  std::vector<Fresh> fresh;
  Stores pending;
  Stores *known[2] = {};  // of the warp and of the block: a fence includes these
};

void map_memory(int world, size_t bytes, bool hold_back, bool converged, int line);
void set_writer(Writer *w);
void settle(Writer &w);
void move_stores(Stores &from, Stores &to);
void copy_stores(const Stores &from, Stores &to);
void end_turn();

// Makes some stores visible; false if none was under way.
bool drain_some(uint64_t n, std::mt19937_64 &random);
int64_t held_back();
int64_t outside_loads();

// Bytes of buffers, which lie behind the regions, that kernels have loaded and stored so far: in vectors, whose halves
// g++ moves one by one, and in pieces of less than 8 bytes.
int64_t bytes_in_vectors();
int64_t bytes_in_pieces();

// Where an address lies.
std::string describe(const void *p);

// Hooks of machine.cc: a load that may have to wait, and a change that lets others
// go on.
void before_load(const void *p, int bytes);
void before_piece(const void *p);
void after_load(const void *p, int bytes);
void changes();
[[noreturn]] void fail(const std::string &what);

}  // namespace emulate
