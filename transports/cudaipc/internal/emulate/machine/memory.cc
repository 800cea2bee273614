// memory.cc: see memory.h. The kernels are compiled with -fsanitize=thread, whose
// calls before every plain load and store end here instead of in its library.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <unordered_map>

#include "cuda.h"
#include "layout.h"
#include "machine.h"

namespace emulate {

struct Store {
  char *to;  // as nobody's rank addresses it
  int bytes, rank;
  bool done;
  char value[16];
  Store *before;  // the one before it to the same 16 bytes
  Store *line;    // the next of the same line, in a circle: they arrive together
};

namespace {

int world;
size_t rank_bytes, window_bytes;  // one rank's memory, and all ranks'
int line_bytes;
char *base;                       // windows: one for each rank, and one for nobody's
bool holding, in_step;
Writer *writer;
std::vector<Fresh> of_turn;  // stores of the warp's turn into its own region; old has the new value

std::deque<Store> all;
Stores under_way;
std::unordered_map<uintptr_t, Store *> last;  // by 16 bytes
std::unordered_map<uintptr_t, Store *> lines; // of this turn, by line_bytes
int64_t total, outside;  // stores held back, loads from elsewhere
int64_t in_vectors, in_pieces;

void count_moved(const void *p, size_t bytes) {
  if (int64_t(size_t(static_cast<const char *>(p) - base) % rank_bytes) < SHUNT_REGION_BYTES(world)) return;
  (bytes < 8 ? in_pieces : in_vectors) += bytes;
}

bool inside(const void *p) { return size_t(static_cast<const char *>(p) - base) < window_bytes * (world + 1); }

int owner_of(const void *p) { return int((static_cast<const char *>(p) - base) % window_bytes / rank_bytes); }

// The thread that runs has looked at a word, which may tell it of its rank's fault.
void learn(const void *p) {
  const char *fault = memory(writer->rank, writer->rank) + SHUNT_OFF_FAULT;
  if (p == fault && *reinterpret_cast<const u32 *>(fault) != SHUNT_FAULT_NONE) writer->lost = true;
}

unsigned left_out;  // parts of regions

// Whether an offset within a rank's memory is in a part that is not there.
bool is_left_out(int64_t at) {
  const int64_t ends[] = {SHUNT_OFF_LL128(world), SHUNT_OFF_CHANNEL(world), SHUNT_OFF_STAGING(world),
                          SHUNT_REGION_BYTES(world)};
  for (int i = 0; i < 3; i++)
    if (at >= ends[i] && at < ends[i + 1]) return left_out >> i & 1;
  return false;
}

// The same place in nobody's window. Checks that the thread that runs may use the
// address.
char *place_of(const void *p) {
  const size_t offset = static_cast<const char *>(p) - base, viewer = offset / window_bytes;
  if (writer && viewer != size_t(writer->rank))
    fail("uses an address of rank " + std::to_string(viewer) + " for " + describe(p));
  if (writer && writer->lost && !writer->engine && owner_of(p) != writer->rank)
    fail("has given up, and touches " + describe(p));
  if (writer && left_out && is_left_out(int64_t(offset % rank_bytes)))
    fail("uses a part that is not there: " + describe(p));
  return base + world * window_bytes + offset % window_bytes;
}

void drain(Store *s) {
  if (s->done) return;
  if (s->before) drain(s->before);
  s->before = nullptr;
  s->done = true;
  memcpy(s->to, s->value, s->bytes);
  changes();
  for (Store *other = s->line; other && other != s; other = other->line) drain(other);
}

void drain(Stores &stores) {
  for (Store *s : stores) drain(s);
  stores.clear();
}

Store *hold(Writer &w, char *to, const void *value, int bytes) {
  total++;
  all.push_back({to, bytes, w.rank, false, {}, nullptr, nullptr});
  Store *s = &all.back();
  memcpy(s->value, value, bytes);
  Store *&previous = last[reinterpret_cast<uintptr_t>(to) / 16];
  if (previous && !previous->done) s->before = previous;
  previous = s;
  w.pending.push_back(s);
  under_way.push_back(s);
  return s;
}

void prune(Stores &stores) {
  stores.erase(std::remove_if(stores.begin(), stores.end(), [](Store *s) { return s->done; }), stores.end());
}

// A thread sees its own stores, and those it knows of.
void drain_known(Writer &w, char *from, int bytes) {
  auto look = [&](Stores &stores) {
    for (Store *s : stores)
      if (!s->done && s->to < from + bytes && from < s->to + s->bytes) drain(s);
  };
  look(w.pending);
  for (Stores *known : w.known) look(*known);
}

// As a GPU, which has no unaligned loads and stores. Ranges are of any length.
void check_alignment(const void *p, size_t bytes) {
  if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && reinterpret_cast<uintptr_t>(p) % bytes != 0)
    fail("moves " + std::to_string(bytes) + " bytes, unaligned, at " + describe(p));
}

void plain_load(const void *p, size_t bytes) {
  if (!inside(p) || !writer) return;
  check_alignment(p, bytes);
  count_moved(p, bytes);
  char *from = place_of(p);
  learn(p);
  if (holding && owner_of(p) != writer->rank) drain_known(*writer, from, int(bytes));
}

void plain_store(void *p, size_t bytes) {
  if (!inside(p) || !writer) return;
  check_alignment(p, bytes);
  count_moved(p, bytes);
  char *to = place_of(p);
  changes();
  const bool own = owner_of(p) == writer->rank;
  if (own ? !in_step || int64_t(to - base) % int64_t(rank_bytes) >= SHUNT_REGION_BYTES(world) : !holding) return;
  for (size_t at = 0; at < bytes;) {
    const int n = int(std::min(bytes - at, 16 - reinterpret_cast<uintptr_t>(to + at) % 16));
    Fresh f{to + at, n, {}};
    memcpy(f.old, to + at, n);
    writer->fresh.push_back(f);
    at += n;
  }
}

}  // namespace

void map_memory(int ranks, size_t bytes, bool hold_back, bool converged, int line) {
  world = ranks;
  rank_bytes = (bytes + 65535) / 65536 * 65536;
  window_bytes = rank_bytes * world;
  holding = hold_back;
  in_step = converged;
  line_bytes = line;
  const int file = memfd_create("ranks", 0);
  if (file < 0 || ftruncate(file, window_bytes) != 0) fail("no memory");
  void *p = mmap(nullptr, window_bytes * (world + 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("no addresses");
  base = static_cast<char *>(p);
  for (int v = 0; v <= world; v++)
    if (mmap(base + v * window_bytes, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
        MAP_FAILED)
      fail("no memory");
  close(file);
}

char *memory(int viewer, int owner) { return base + viewer * window_bytes + owner * rank_bytes; }

void leave_out(unsigned parts) { left_out = parts; }

void set_writer(Writer *w) { writer = w; }

void settle(Writer &w) {
  if (w.fresh.empty()) return;
  std::vector<Fresh> fresh;
  fresh.swap(w.fresh);
  std::vector<std::array<char, 16>> values(fresh.size());
  for (size_t i = fresh.size(); i-- > 0;) {
    memcpy(values[i].data(), fresh[i].to, fresh[i].bytes);
    memcpy(fresh[i].to, fresh[i].old, fresh[i].bytes);
  }
  for (size_t i = 0; i < fresh.size(); i++) {
    if (owner_of(fresh[i].to) != w.rank) {
      hold(w, fresh[i].to, values[i].data(), fresh[i].bytes);
      continue;
    }
    memcpy(fresh[i].old, values[i].data(), fresh[i].bytes);
    of_turn.push_back(fresh[i]);
  }
}

void move_stores(Stores &from, Stores &to) {
  copy_stores(from, to);
  from.clear();
}

void copy_stores(const Stores &from, Stores &to) {
  if (from.empty()) return;
  if (to.size() > 1024) prune(to);
  for (Store *s : from)
    if (!s->done) to.push_back(s);
}

void end_turn() {
  for (const Fresh &f : of_turn) memcpy(f.to, f.old, f.bytes);
  of_turn.clear();
  lines.clear();
}

bool drain_some(uint64_t n, std::mt19937_64 &random) {
  bool any = false;
  while (n > 0 && !under_way.empty()) {
    // Any, or one of the youngest: then what was stored before it is late.
    const size_t size = under_way.size(),
                 i = random() & 1 ? size - 1 - random() % std::min<size_t>(size, 4) : random() % size;
    Store *s = under_way[i];
    if (i + 1 < size && size - i <= 4) under_way.erase(under_way.begin() + i);
    else under_way[i] = under_way.back(), under_way.pop_back();
    if (s->done) continue;
    drain(s);
    any = true;
    n--;
  }
  return any;
}

int64_t held_back() { return total; }

std::string describe(const void *p) {
  if (!inside(p)) return "a word of its block";
  const int64_t offset = (static_cast<const char *>(p) - base) % window_bytes, at = offset % rank_bytes;
  static const struct {
    const char *name;
    int64_t from;
  } kParts[] = {{"FAULT", SHUNT_OFF_FAULT}, {"EPOCH", SHUNT_OFF_EPOCH}, {"SENT", SHUNT_OFF_SENT},
                {"RECEIVED", SHUNT_OFF_RECEIVED}, {"CREDIT", SHUNT_OFF_CREDIT}, {"DONE", SHUNT_OFF_DONE},
                {"HELLO", SHUNT_OFF_HELLO}, {"OFFER", SHUNT_OFF_OFFER}, {"OFFERED", SHUNT_OFF_OFFERED},
                {"ACCEPTED", SHUNT_OFF_ACCEPTED}, {"LANDED", SHUNT_OFF_LANDED}, {"STAGED", SHUNT_OFF_STAGED},
                {"TAKEN", SHUNT_OFF_TAKEN}, {"FORWARD", SHUNT_OFF_FORWARD}, {"MISSED", SHUNT_OFF_MISSED},
                {"SIGNAL", SHUNT_OFF_SIGNAL}, {"SIGNALED", SHUNT_OFF_SIGNALED}, {"WAITED", SHUNT_OFF_WAITED},
                {"PENDING", SHUNT_OFF_PENDING}, {"EXPORTS", SHUNT_OFF_EXPORTS}, {"IMPORTS", SHUNT_OFF_IMPORTS},
                {"COUNTS", SHUNT_OFF_COUNTS(world)}, {"TERMS", SHUNT_OFF_TERMS}, {"LL", SHUNT_OFF_LL(world)},
                {"LL128", SHUNT_OFF_LL128(world)}, {"CHANNEL", SHUNT_OFF_CHANNEL(world)},
                {"STAGING", SHUNT_OFF_STAGING(world)}, {"buffers", SHUNT_REGION_BYTES(world)}};
  const auto *part = kParts;
  for (const auto &p : kParts)
    if (p.from <= at && p.from >= part->from) part = &p;
  char text[128];
  snprintf(text, sizeof text, "rank %d's %s + %lld", int(offset / rank_bytes), part->name,
           (long long)(at - part->from));
  return text;
}

u64 compare_and_swap(void *p, u64 expected, u64 value, int bytes) {
  char *at = inside(p) ? place_of(p) : static_cast<char *>(p);
  changes();
  u64 before = 0;
  if (writer) {
    settle(*writer);
    drain_known(*writer, at, bytes);
  }
  memcpy(&before, at, bytes);
  if (before == expected) memcpy(at, &value, bytes);
  if (writer) learn(p);
  return before;
}

u64 add(void *p, u64 value, int bytes) {
  char *at = inside(p) ? place_of(p) : static_cast<char *>(p);
  changes();
  u64 before = 0;
  if (writer) {
    settle(*writer);
    drain_known(*writer, at, bytes);
  }
  memcpy(&before, at, bytes);
  value += before;
  memcpy(at, &value, bytes);
  return before;
}

int64_t outside_loads() { return outside; }

int64_t bytes_in_vectors() { return in_vectors; }
int64_t bytes_in_pieces() { return in_pieces; }

namespace ptx {

static void load_at(const void *p, void *v, int bytes, bool alone) {
  if (!inside(p)) {
    outside++;
    memcpy(v, p, bytes);
    return;
  }
  check_alignment(p, bytes);
  count_moved(p, bytes);
  char *from = place_of(p);
  if (alone) before_load(from, bytes);
  if (holding && owner_of(p) != writer->rank) {
    settle(*writer);
    drain_known(*writer, from, bytes);
  }
  memcpy(v, from, bytes);
  after_load(from, bytes);
}
void load(const void *p, void *v, int bytes) { load_at(p, v, bytes, true); }
void load_line(const void *p, void *v) {
  const bool pieces = line_bytes < 128;
  if (pieces && inside(p)) before_piece(p);
  load_at(p, v, 16, pieces);
}

static Store *store_at(const void *p, const void *v, int bytes) {
  changes();
  if (!inside(p)) {
    memcpy(const_cast<void *>(p), v, bytes);
    return nullptr;
  }
  check_alignment(p, bytes);
  char *to = place_of(p);
  if (!holding || owner_of(p) == writer->rank) {
    memcpy(to, v, bytes);
    return nullptr;
  }
  settle(*writer);
  return hold(*writer, to, v, bytes);
}
void store(const void *p, const void *v, int bytes) { store_at(p, v, bytes); }
void store_line(const void *p, const void *v) {
  Store *s = store_at(p, v, 16);
  if (!s) return;
  Store *&first = lines[reinterpret_cast<uintptr_t>(s->to) / line_bytes];
  if (!first) {
    first = s->line = s;
  } else {
    s->line = first->line;
    first->line = s;
  }
}

void fence() {
  settle(*writer);
  drain(writer->pending);
  for (Stores *known : writer->known) drain(*known);
}

}  // namespace ptx
}  // namespace emulate

#define HOOKS(n)                                                             \
  void __tsan_read##n(void *p) { emulate::plain_load(p, n); }                \
  void __tsan_write##n(void *p) { emulate::plain_store(p, n); }              \
  void __tsan_unaligned_read##n(void *p) { emulate::plain_load(p, n); }      \
  void __tsan_unaligned_write##n(void *p) { emulate::plain_store(p, n); }
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, long bytes) { emulate::plain_load(p, bytes); }
void __tsan_write_range(void *p, long bytes) { emulate::plain_store(p, bytes); }
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
