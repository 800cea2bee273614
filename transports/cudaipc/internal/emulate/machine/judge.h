// judge.h: calls that differ between ranks, how a program comes to have them, and what ranks must
// tell of them.
#pragma once

#include "calls.h"

static bool is_packets(const Kernel &k) { return has(k.name, "_ll") && !has(k.name, "_ll128"); }

// Whether a kernel compares what ranks call, and not the lengths of messages alone.
static bool compares_calls(const Kernel &k) {
  return k.coll != kAllToAllV && !has(k.name, "shunt_broadcast_ll128") && !has(k.name, "shunt_reduce_ll128");
}

// Makes the ends of a message of a call differ. Any of the two may be long, both, or
// none.
static void differ(Call &c, std::mt19937 &random) {
  c.count = 2 + random() % 6000, c.in_place = false;
  if (is_packets(c.kernel)) c.count = 2 + c.count % 600;  // of which each thread waits for its own
  c.said = c.count, c.expected = 1 + random() % c.count;
  c.to = int(random() % world);
  if (c.kernel.coll == kAllToAllV) {
    c.from = (c.to + 1 + int(random() % (world - 1))) % world;
    c.said = 1 + random() % c.count;
    if (random() % 4 == 0 && c.said < c.count) c.expected = c.said + 1;
  }
  if (c.expected == c.said) c.expected = c.said == 1 ? 2 : c.said - 1;
  if (!compares_calls(c.kernel)) return;
  const bool rooted = c.kernel.coll == kReduce || c.kernel.coll == kBroadcast;
  // Of two ranks that stage in a reduce, each with the other as its root, none waits for anything.
  const bool pair = world == 2 && has(c.kernel.name, "shunt_reduce_staged");
  // Of blocks of any lengths kernels in lines know the longest, which may be the same.
  const int first = c.kernel.coll == kReduceScatterV && has(c.kernel.name, "_ll");
  c.what = first + random() % (4 + (rooted && !pair) - first);
  if (c.what != 0) c.said = c.expected = c.count;
}

// The word of kernels/call.cuh.
static uint64_t word_of(const shunt_kernel_args &a, uint64_t bytes) { return uint64_t(a.what) << 48 | bytes; }

// A kernel has told that lengths differ, or calls, and whose. Nothing has arrived where nothing
// was sent that is as long as expected.
static void judge(const Call &c, bool alone) {
  int told = 0, apart = 0;
  const bool v = c.kernel.coll == kReduceScatterV;  // each rank compares how long its own block is
  const bool calls = compares_calls(c.kernel);
  auto differs = [&](int r) {
    const int peer = r == c.to ? (r + 1) % world : c.to;
    return !v || c.what != 0 || pair_count(c, 0, r, r) != pair_count(c, 0, r, peer);
  };
  const int64_t size = values::kBytes[c.type];
  const int64_t at = kGuard + (c.from < 0 ? 0 : displ_of(c, c.to, c.from, false) * size);  // where the message would be
  auto wrong = [&](int r, const char *what) { bad++, printf("WRONG %s: rank %d: %s\n", c.text().c_str(), r, what); };
  for (int r = 0; r < world; r++) {
    const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT),
                      *seen = &watches[r].fault;
    if (f->kind != seen->kind || f->peer != seen->peer || f->epoch != seen->epoch)
      wrong(r, "the watch page has another fault than the region");
    const Part &p = c.parts[r];
    const int64_t inner = p.before.size() - kGuard;
    if (memcmp(p.recv - kGuard, p.before.data(), kGuard) ||
        memcmp(p.recv + inner - kGuard, p.before.data() + inner, kGuard))
      wrong(r, "memory beside the buffer");
    apart += differs(r);
    if (calls && differs(r) && memcmp(p.recv - kGuard, p.before.data(), p.before.size()))
      wrong(r, "something was stored");
    if (alone && r == c.to && c.from >= 0 && memcmp(p.recv - kGuard + at, p.before.data() + at, c.expected * size))
      wrong(r, "a part of the message");
    if (f->kind != (calls ? SHUNT_FAULT_CALL : SHUNT_FAULT_LENGTH)) {
      if (f->kind > SHUNT_FAULT_ABORTED) wrong(r, "another fault");
      continue;
    }
    told++;
    auto bytes = [&](int rank) {
      if (v && has(c.kernel.name, "_ll")) return uint64_t(c.parts[rank].args.base.bytes);
      return uint64_t(size * (v ? pair_count(c, 0, r, rank) : rank == c.to ? c.expected : c.said));
    };
    uint64_t mine = watches[r].fault_own[0], theirs = watches[r].fault_theirs[0];
    if (c.from >= 0 && (r != c.to || f->peer != c.from)) wrong(r, "another pair");
    if (!calls) {
      if (mine != bytes(r) || theirs != bytes(f->peer)) wrong(r, "other lengths");
      continue;
    }
    if (r != c.to && f->peer != c.to) wrong(r, "another peer");
    const uint64_t kind = 15ull << 44;
    uint64_t want = word_of(c.parts[f->peer].args.base, bytes(f->peer));
    if (is_packets(c.kernel)) want &= ~((1ull << 44) - (1 << 17));  // as many bits of the bytes as they have
    if ((mine & ~kind) != word_of(p.args.base, bytes(r)) || (theirs & ~kind) != want || ((mine ^ theirs) & kind) != 0)
      wrong(r, "other calls");
  }
  if (told == 0 && apart > 0) wrong(c.to, "nobody has told");
}

// The last call of one rank was another kernel's: somebody has told so, and which two calls
// met; nobody has stored anything.
static void judge(const Call &everyones, const Call &odd, int rank) {
  int told = 0;
  auto partly = [](const Call &c) {
    return c.kernel.coll == kReduceScatterV || c.kernel.coll >= kBarrier || is_packets(c.kernel);
  };
  auto of = [&](int r) -> const Call & { return r == rank ? odd : everyones; };
  auto wrong = [&](int r, const char *what) {
    bad++, printf("WRONG %s, on rank %d %s: rank %d: %s\n", everyones.text().c_str(), rank, odd.text().c_str(), r,
                  what);
  };
  for (int r = 0; r < world; r++) {
    const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT);
    const Part &p = of(r).parts[r];
    if (memcmp(p.recv - kGuard, p.before.data(), p.before.size())) wrong(r, "something was stored");
    if (f->kind != SHUNT_FAULT_CALL) {
      if (f->kind > SHUNT_FAULT_ABORTED) wrong(r, "another fault");
      continue;
    }
    told++;
    if ((f->peer == rank) == (r == rank)) wrong(r, "another peer");
    // Of a reduce_scatter_v some kernels say the bytes of a block.
    auto word = [&](const Call &c, int rank) {
      const shunt_kernel_args &a = c.parts[rank].args.base;
      return word_of(a, partly(c) ? 0 : a.bytes);
    };
    auto plain = [&](const Call &c, uint64_t w) { return w & (partly(c) ? ~((1ull << 48) - 1) : ~(15ull << 44)); };
    const Call &theirs = of(f->peer);
    if (plain(of(r), watches[r].fault_own[0]) != word(of(r), r) ||
        plain(theirs, watches[r].fault_theirs[0]) != word(theirs, f->peer))
      wrong(r, "other calls"), printf("%llx %llx, want %llx %llx\n", (unsigned long long)watches[r].fault_own[0],
                                      (unsigned long long)watches[r].fault_theirs[0],
                                      (unsigned long long)word(of(r), r), (unsigned long long)word(theirs, f->peer));
  }
  if (told == 0) wrong(rank, "nobody has told");
}

// The receive memory of one rank lies elsewhere: every rank has told so, and whose, and its kernel has
// lasted as long as its wait may. A turn is 100 nanoseconds, and the timer steps back by 2000.
static void judge(const Call &c, int odd, const std::vector<int64_t> &lasted) {
  for (int r = 0; r < world; r++) {
    const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT);
    if (f->kind != SHUNT_FAULT_ASYMMETRIC || (f->peer == odd) == (r == odd))
      bad++, printf("WRONG rank %d: fault %u, rank %d\n", r, f->kind, f->peer);
    if (lasted[r] * 100 + 2000 < int64_t(c.timeout))
      bad++, printf("WRONG rank %d stayed for %lld turns\n", r, (long long)lasted[r]);
  }
}
