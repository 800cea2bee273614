// threads.cc: what the threads of a kernel call: looking at words, votes, barriers
// and shared memory.
#include "state.h"

namespace emulate {

// Parks the thread when it looks again at what has not changed, nor anything else
// that it has looked at since it last changed something.
void before_load(const void *p, int bytes) {
  Thread *t = current;
  const char *from = static_cast<const char *>(p);
  for (const Load &l : t->history)
    if (l.from == from && l.bytes == bytes) {
      if (changed(*t)) {
        t->history.clear();  // it may be nothing that the thread looks at ever again
        break;
      }
      t->waits = p;
      if (t->warp->block->early) fail("waits, and has let the next kernel begin before all ranks had begun this one");
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

// A piece of the lines that a warp loads may be loaded behind the others, of all of them:
// then what is there is not of one moment.
void before_piece(const void *p) {
  if (int(reinterpret_cast<uintptr_t>(p) % 128 / policy.line) == current->warp->late) pause();
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
    bool lost = false;
    for (size_t i = 0; i < w.lanes.size(); i++) {
      lost = lost || w.lanes[i]->writer.lost;
      any |= w.value[i] != 0, all &= w.value[i] != 0, bits |= w.value[i];
      ballot |= u64(w.value[i] != 0) << i;
    }
    settle(t->writer);
    for (size_t i = 0; i < w.lanes.size(); i++) {
      Thread &other = *w.lanes[i];
      other.writer.lost = lost;
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

bool join(int id, int threads, bool says) {
  Thread *t = current;
  Block &b = *t->warp->block;
  if (b.joined[id] == 0) b.expected[id] = threads;
  if (b.expected[id] != threads) fail("another number of threads at barrier " + std::to_string(id));
  t->history.clear();
  t->state = Thread::kJoining;
  t->barrier = id;
  b.said[id] = b.said[id] || says;
  settle(t->writer);
  if (++b.joined[id] == (threads ? threads : b.live)) release_barrier(b, id);
  leave();
  return t->result != 0;
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
  if (current->writer.lost) b.lost.insert(address);
}
static void acquire_at(u32 address) {
  auto &released = current->warp->block->released;
  auto found = released.find(address);
  if (found != released.end()) copy_stores(found->second, current->writer.pending);
  if (current->warp->block->lost.count(address)) current->writer.lost = true;
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

// A kernel begins when the one before it has ended, so there is nothing to wait for. But none may let the next one
// begin before it knows that, as any number would begin then; a single block may as soon as it does.
void griddepcontrol_wait() { current->warp->block->behind = true; }
void griddepcontrol_launch_dependents() {
  Block &b = *current->warp->block;
  if (!b.behind) fail("lets the next kernel begin before the one before it has ended");
  if (b.grid->launch->blocks > 1 && !all_have_begun(b.grid->launch->call)) b.early = true;
}

// A timer that steps back by two microseconds for a while, again and again.
void mov_u64_globaltimer(u64 &t) { t = 1000000000 + u64(turns) * 100 - (turns % 64 < 8 ? 2000 : 0); }

}  // namespace ptx
}  // namespace emulate
