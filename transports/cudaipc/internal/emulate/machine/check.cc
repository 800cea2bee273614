// check.cc: every kernel on the machine against a reference: all ops, odd counts,
// misaligned buffers, in place, small and large grids. A program is some calls
// that every rank makes one after the other; ranks wait for each other nowhere
// else, so calls meet the slots, counts and epochs that those before have left.
//
//   check [--absent|--abort|--alone|--asymmetric|--lengths|--others|--impossible|--apart] [--diverged]
//         [--one-block] [--torn] [--fenced] [--without=PARTS] WORLD SEED CALLS KERNEL...
//
// Kernels that reduce have the dtype in their name. --absent: the last rank makes
// no call, and the machine must say who waits; --abort: likewise, but the abort
// word is raised. --alone: some ranks make the last call, or the last two, before the
// others come, and give up, naming one of these; what these then have must be right, or they give up too.
// --lengths: the ends of a message of the last call differ, or of the
// last two, a kernel must say so, and then the abort word is raised; for one kernel
// that uses channels. --others: the last call of one rank is another kernel's, and somebody
// must say so. --impossible: a rank's counts of the last call cannot be, for the
// kernel that reads them from device memory. --asymmetric: one rank's receive memory of the last call
// lies elsewhere, for the kernel that compares it; the abort word is not raised.
// --apart: messages are long and buffers are not aligned, and kernels must move them in
// vectors all the same, all but a quarter of the bytes.
// --diverged: a warp's threads see each other's stores at once. --one-block: every GPU has
// place for one block of a kernel. --torn: lines arrive in pieces of 32 bytes, as over PCIe.
// --fenced: and kernels are told so. --without: these parts of regions are not there, as bits
// of package parts.
#include "judge.h"

static int clamp(int64_t v, int64_t low, int64_t high) { return int(std::min(std::max(v, low), high)); }

// Bytes from which a message needs the kernel that makes offers, as is_long has it.
static int64_t long_from() { return world == 2 ? EMULATED_LONG_OF_TWO : EMULATED_LONG; }

// Whether every rank waits for all others.
static bool meets(const Kernel &k) {
  return k.coll == kAllReduce || k.coll == kAllGather || k.coll == kReduceScatter || k.coll == kAllToAll;
}

// The kernel of all_to_all_v, and its grid, for messages of at most so many bytes.
static void size_pairs(Call &c, int64_t bytes, bool any) {
  any = any || on_device(c);
  const int most = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / world),
            units = clamp((bytes + 479) / 480, 1, most * SHUNT_MAX_WARPS);
  const int grid = 1 << (31 - __builtin_clz(c.budget));
  const bool turns = grid < world * most;  // as plans.go has it
  if (!on_device(c))
    c.kernel = classify(any ? "shunt_all_to_all_v_long" : turns ? "shunt_all_to_all_v_in_turns" : "shunt_all_to_all_v");
  c.root = turns ? most : std::min(units, most);
  c.blocks = any || turns ? grid : world * c.root;
  c.threads = any ? SHUNT_MAX_THREADS : (units + most - 1) / most * 32;
}

// A call as one rank makes it: the kernels of all_to_all_v suit each other, so a rank
// may launch any, but with a long message not that for short ones.
static emulate::Launch suited(Call &c, int r, std::mt19937 &random) {
  int64_t longest = 0;
  for (int s = 0; s < world; s++) longest = std::max({longest, pair_count(c, r, s, r), pair_count(c, s, r, r)});
  const int64_t bytes = longest * values::kBytes[c.type];
  Call call = c;
  if (c.kernel.coll == kAllToAllV) {
    call.kernel = classify(random() % 3 == 0 ? "shunt_all_to_all_v_on_device" : "shunt_all_to_all_v");
    size_pairs(call, bytes, bytes >= long_from() || random() % 4 == 0);
    c.parts[r].args.base.root = call.root;
  }
  emulate::Launch l = launch(c, r, call.kernel.name, call.kernel.entry);
  l.blocks = call.blocks, l.threads = call.threads;
  return l;
}

// What a rank's kernel must tell of its counts on the device.
struct Refusal {
  int rank, peer;
  int64_t count, displ, side, room;
};

// Makes something of a rank's counts impossible.
static Refusal spoil(Call &c, std::mt19937 &random) {
  Refusal f{int(random() % world), int(random() % world), 0, 0, int64_t(random() % 2), c.count * world};
  Part &p = c.parts[f.rank];
  shunt_kernel_args_on_device &d = p.on_device;
  int64_t &count = p.arrays[2 * f.side][f.peer], &displ = p.arrays[2 * f.side + 1][f.peer];
  const bool packed = (f.side ? d.recv_displs : d.send_displs) == 0;
  if (packed) {  // what the kernel takes to be there
    displ = 0;
    for (int s = 0; s < f.peer; s++) displ += p.arrays[2 * f.side][s];
  }
  int which = random() % (packed ? 4 : 7);
  if (which == 3 && f.room == 0) which = 2;  // with no room a rank can expect nothing of itself
  switch (which) {
    case 0: count = -1 - int64_t(random() % 3); break;
    case 1: count = f.room - displ + 1; break;
    case 2: count = INT64_MAX / int(1 + random() % 4); break;
    case 3:  // to itself
      f.peer = f.rank, f.side = 2;
      f.count = p.arrays[0][f.rank], f.displ = d.send_displs == 0 ? -1 : p.arrays[1][f.rank];
      f.room = p.arrays[2][f.rank] = p.arrays[2][f.rank] == 0 ? 1 : p.arrays[2][f.rank] - 1;
      return f;
    case 4: displ = -1 - int64_t(random() % 3); break;
    case 5: count += count == 0, displ = f.room - count + 1; break;
    case 6: count += count == 0, displ = INT64_MAX - int64_t(random() % 2); break;
  }
  f.count = count, f.displ = displ;
  return f;
}

// That rank has told so, and stored nothing; the others were aborted, at most.
static void judge(const Call &c, const Refusal &w) {
  auto wrong = [&](int r, const char *what) { bad++, printf("WRONG %s: rank %d: %s\n", c.text().c_str(), r, what); };
  for (int r = 0; r < world; r++) {
    const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT),
                      *seen = &watches[r].fault;
    if (f->kind != seen->kind || f->peer != seen->peer) wrong(r, "the watch page has another fault than the region");
    if (r != w.rank) {
      if (f->kind > SHUNT_FAULT_ABORTED) wrong(r, "another fault");
      continue;
    }
    const Part &p = c.parts[r];
    const uint64_t *own = watches[r].fault_own;
    if (f->kind != SHUNT_FAULT_COUNTS || f->peer != w.peer) wrong(r, "another fault or peer");
    if (own[0] != uint64_t(w.count) || (own[1] != uint64_t(w.displ) && w.displ >= 0) || own[2] != uint64_t(w.side) ||
        watches[r].fault_theirs[0] != uint64_t(w.room))
      wrong(r, "other counts");
    if (memcmp(p.recv - kGuard, p.before.data(), p.before.size())) wrong(r, "something was stored");
  }
}

// A copy engine's copy from a rank's memory to a peer's, both as their own ranks
// address them.
static emulate::Launch copy(const Call &c, int r, int peer, const char *from, const char *to, int64_t bytes) {
  shunt_kernel_args a = c.parts[r].args.base;
  a.send = uint64_t(from), a.recv = uint64_t(to - emulate::memory(peer, peer) + emulate::memory(r, peer)),
  a.bytes = bytes;
  static void *const f = entry("shunt_copy");
  return {"shunt_copy", 1, 32, {}, [a] { reinterpret_cast<void (*)(shunt_kernel_args)>(f)(a); }, {}, {}, false, true};
}

// The gate that a kernel may have before it, or none.
static const char *gate_of(const Kernel &k) {
  return has(k.name, "_direct") ? "shunt_gate_direct" : has(k.name, "_staged") ? "shunt_gate_staged"
       : has(k.name, "_ll128") ? "shunt_gate_ll128" : nullptr;
}

// Whether a rank has a gate before its kernel, as it may or may not, whatever its peers do.
static bool gated(const Call &c, int r) {
  const bool v = c.kernel.coll == kReduceScatterV;
  const bool equal = c.count > 0 && (c.kernel.coll == kAllGather || c.kernel.coll == kReduceScatter ||
                                     c.kernel.coll == kAllToAll);
  return (v || equal) && gate_of(c.kernel) && (c.seed % 3 == 0 || c.seed >> (16 + r) & 1);
}

// The gate before it.
static emulate::Launch gate(const Call &c, int r) {
  shunt_kernel_args a = c.parts[r].args.base;
  const char *name = gate_of(c.kernel);
  void *const f = entry(name);
  return {name, 1, 32, {}, [a, f] { reinterpret_cast<void (*)(shunt_kernel_args)>(f)(a); }, {}, {}};
}

// An all_reduce by copy engines as one rank makes it: the kernel that combines on a
// stream of its own, see kernels/delivered.cuh and copies.go.
static void deliver(const Call &c, int r, std::vector<emulate::Launch> &main, std::vector<emulate::Launch> &beside) {
  const Part &p = c.parts[r];
  const int64_t shard = p.args.base.bytes / world, first = (shard / 2 + 15) / 16 * 16, own = r * shard;
  bool *begun = new bool(false), *combined = new bool(false);
  auto plain = [&](const char *name, uint64_t send, uint64_t recv, int root) {
    shunt_kernel_args a = p.args.base;
    a.send = send, a.recv = recv, a.root = root;
    void *f = entry(name);
    return emulate::Launch{name, 1, 32, {}, [a, f] { reinterpret_cast<void (*)(shunt_kernel_args)>(f)(a); }, {}, {}};
  };
  auto turn = [&](int number) { main.push_back(plain("shunt_symmetric_turn", 0, 0, number)); };
  main.push_back(plain("shunt_symmetric_begin", 3, 4096, 0));
  main.back().after = [=] { *begun = true; };
  beside.push_back({c.kernel.name, c.blocks, c.threads, {}, [&p, &c, shard] {
                      shunt_kernel_args a = p.args.base;
                      a.bytes = shard;
                      reinterpret_cast<void (*)(shunt_kernel_args)>(c.kernel.entry)(a);
                    },
                    [=] { *combined = true; }, [=] { return *begun; }});
  auto result = [&](int64_t at, int64_t bytes) {
    for (int k = 1; k < world; k++)
      main.push_back(copy(c, r, (r + k) % world, p.recv + at, c.parts[(r + k) % world].recv + at, bytes));
  };
  for (int k = 1; k < world; k++) {
    const int peer = (r + k) % world;
    const char *from = p.send + shard * peer, *to = c.parts[peer].recv + own;
    main.push_back(copy(c, r, peer, from, to, k < world - 1 ? shard : first));
    if (k < world - 1) continue;
    turn(0);
    main.push_back(copy(c, r, peer, from + first, to + first, shard - first));
  }
  turn(1);
  result(own, first);
  turn(2);
  result(own + first, shard - first);
  main.push_back(plain("shunt_barrier", 0, 0, 0));
  main.back().ready = [=] { return *combined; };
  main.back().after = [&c, r] {
    if (!aborted && !has_fault(r)) compare(c, r, "");
  };
}

int main(int argc, char **argv) {
  bool absent = false, abort = false, alone = false, lengths = false, others = false, impossible = false,
       asymmetric = false, diverged = false, one_block = false, torn = false, apart = false;
  while (argc > 1 && argv[1][0] == '-') {
    absent = absent || strcmp(argv[1], "--absent") == 0;
    abort = abort || strcmp(argv[1], "--abort") == 0;
    alone = alone || strcmp(argv[1], "--alone") == 0;
    lengths = lengths || strcmp(argv[1], "--lengths") == 0;
    others = others || strcmp(argv[1], "--others") == 0;
    impossible = impossible || strcmp(argv[1], "--impossible") == 0;
    asymmetric = asymmetric || strcmp(argv[1], "--asymmetric") == 0;
    apart = apart || strcmp(argv[1], "--apart") == 0;
    diverged = diverged || strcmp(argv[1], "--diverged") == 0;
    one_block = one_block || strcmp(argv[1], "--one-block") == 0;
    torn = torn || strcmp(argv[1], "--torn") == 0;
    fenced = fenced || strcmp(argv[1], "--fenced") == 0;
    if (strncmp(argv[1], "--without=", 10) == 0) emulate::leave_out(atoi(argv[1] + 10));
    argc--, argv++;
  }
  if (argc < 5)
    return fprintf(stderr,
                   "usage: check [--absent|--abort|--alone|--asymmetric|--lengths|--others|--impossible|--apart] "
                   "[--diverged] [--one-block] [--torn] [--fenced] [--without=PARTS] WORLD SEED CALLS KERNEL...\n"),
           2;
  world = atoi(argv[1]);
  const unsigned seed = atoi(argv[2]);
  const int calls = atoi(argv[3]);
  std::vector<Kernel> kernels;
  for (int i = 4; i < argc; i++) kernels.push_back(classify(argv[i]));
  std::mt19937 random(seed);
  Policy policy;
  policy.order = Policy::Order(random() % 3);
  static const Policy::Stores kStores[] = {Policy::kAtOnce, Policy::kSoon, Policy::kSoon, Policy::kSoon,
                                           Policy::kLate,   Policy::kLate, Policy::kLast, Policy::kLast};
  policy.stores = kStores[random() % 8];
  if (abort || alone || asymmetric || lengths || others || impossible) policy.park = false;
  if ((alone || asymmetric || lengths || others || impossible) && policy.stores == Policy::kLast)
    policy.stores = Policy::kLate;  // who looks again and again can always run
  if ((others || (lengths && compares_calls(kernels[0]))) && policy.stores == Policy::kLate)
    policy.stores = Policy::kSoon;  // within the kernels' patience
  policy.converged = !diverged;
  if (one_block) policy.resident = 1;
  if (torn) policy.line = 32;
  // The longest took 210,000 for 3 calls, 1,100,000 for 12 and 3,700,000 for 44.
  policy.turns = 1000000 + calls * 500000ll;
  emulate::setup(world, buffers_at(world) + kBuffers, seed * 1000003ull + world, policy);
  for (int r = 0; r < world; r++) {
    shunt_export *e = reinterpret_cast<shunt_export *>(emulate::memory(r, r) + SHUNT_OFF_EXPORTS) + export_of(r);
    *e = {uint64_t(emulate::memory(r, r) + buffers_at(r)), uint64_t(kBuffers), ~0ull, 1};
    for (int s = 0; s < world; s++)
      reinterpret_cast<uint64_t *>(emulate::memory(r, r) + SHUNT_OFF_IMPORTS)[s * SHUNT_MAX_EXPORTS + export_of(s)] =
          uint64_t(emulate::memory(r, s) + buffers_at(s));
  }

  // What a rank has never used it does not hear in.
  for (int r = 0; others && r < world; r++)
    for (int i = 0; i < SHUNT_MAX_BLOCKS; i++)
      *reinterpret_cast<uint64_t *>(emulate::memory(r, r) + SHUNT_OFF_EPOCH +
                                    (SHUNT_CLASS_LL128 * SHUNT_MAX_BLOCKS + i) * SHUNT_EPOCH_BYTES) = 8;

  auto pick = [&](auto &&list) { return list[random() % list.size()]; };
  std::vector<Call> program(calls + others);  // the last one is one rank's, in the place of the one before
  // The ends of the last call's message differ, or of the last two, which each has the
  // other's length.
  const int broken_from = calls - (lengths && kernels[0].coll == kAllToAllV && calls > 1 && random() % 2 ? 2 : 1);
  const int alone_from = alone ? std::max(calls - 1 - int(random() % 2), 0) : calls;
  const int late = alone ? 1 + int(random() % ((1 << world) - 2)) : 0;  // ranks that come later, by bit
  for (int i = 0; i < int(program.size()); i++) {
    Call &c = program[i];
    // Every kernel in turn, from a place that depends on the seed, then repeated.
    c.kernel =
        random() % 4 == 0 && i > 0 ? program[i - 1].kernel : kernels[(i + size_t(seed) * calls) % kernels.size()];
    if (others && i == calls)  // of all the other ones
      c.kernel = kernels[(calls - 1 + size_t(seed) * calls + 1 + random() % (kernels.size() - 1)) % kernels.size()];
    c.type = c.kernel.type >= 0 ? c.kernel.type : c.kernel.coll >= kBarrier ? 1 : int(random() % values::kTypes);
    c.op = int(random() % 6), c.root = int(random() % world);
    c.shift = random() % 3 == 0 ? random() % 16 : 0;
    c.recv_shift = random() % 4 == 0 ? random() % 16 : c.shift, c.uneven = random() % 4 == 0;
    c.count = pick(std::vector<int64_t>{0, 1, 2, 3, 7, 15, 17, 120, 121, 480, 481, 1023, 1025, 2500, 4099, 8200});
    if (values::kBytes[c.type] == 1) c.count *= 1 + random() % 4;
    // Shards that are a number of chunks long, but the last one, which lacks a little.
    if (has(c.kernel.name, "_staged") && random() % 4 == 0)
      c.count = (1 + int64_t(random() % 3)) * SHUNT_STAGE_BYTES(world) *
                    (c.kernel.coll == kReduce && world > 2 ? world - 1 : world) / values::kBytes[c.type] -
                1 - random() % 3;
    if (abort || alone) c.count = std::min<int64_t>(c.count, 1023);  // every wait takes its 512 spins to see the abort
    c.in_place = random() % 3 == 0 && c.kernel.coll < kBarrier && c.kernel.coll != kAllToAllV;
    if (c.kernel.coll == kDelivered) {  // out of place, of shards of whole words, which engines cannot scale
      const int64_t unit = 16 * world / values::kBytes[c.type];
      c.in_place = false, c.op = c.op % 5;
      c.count = (c.count + unit) / unit * unit;
      if (!has(c.kernel.name, "_any")) {
        c.shift = c.recv_shift = 0;
        if (world > 4)
          c.kernel = classify(std::string(c.kernel.name).insert(strlen("shunt_all_reduce_delivered"), "_any"));
      }
    }
    c.reachable = apart || random() % 4 != 0;
    if (apart) {
      const int size = values::kBytes[c.type];
      const int shards = has(c.kernel.name, "all_reduce") ? world : 1;
      c.count = (16 * SHUNT_STAGE_BYTES(world) * shards + random() % 500) / size;
      c.shift = 1 + random() % (16 / size - (size < 8)), c.recv_shift = random() % 2 ? c.shift : random() % 16;
      c.uneven = false, c.kernel.twin = nullptr;
      c.in_place = c.in_place && c.kernel.coll != kAllToAll;  // which takes lines
    }
    c.spread = random() % 4 == 0 && c.kernel.coll < kBarrier && c.kernel.coll != kDelivered;
    c.reversed = (c.kernel.coll == kAllToAllV || c.kernel.coll == kReduceScatterV) && random() % 3 == 0;
    const int64_t bytes = c.count * values::kBytes[c.type];
    c.blocks = 1 + random() % SHUNT_MAX_BLOCKS;
    c.budget = random() % 2 ? SHUNT_MAX_BLOCKS : 1 + random() % (SHUNT_MAX_BLOCKS - 1);
    c.threads = 32 * (1 + random() % SHUNT_MAX_WARPS);
    switch (c.kernel.grid) {
      case kAny: break;
      case kAllThreads: c.threads = SHUNT_MAX_THREADS; break;
      case kFull: c.blocks = c.budget, c.threads = SHUNT_MAX_THREADS; break;
      case kReduceGrid:
        c.blocks = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / (world - 1)) * (world - 1),
        c.threads = SHUNT_MAX_THREADS;
        break;
      case kPairs:
        if (!has(c.kernel.name, "_long") && !on_device(c) && bytes >= long_from())
          c.count = long_from() / values::kBytes[c.type] - 1;
        size_pairs(c, c.count * values::kBytes[c.type], has(c.kernel.name, "_long"));
        break;
      case kOneWarp: c.blocks = 1, c.threads = 32; break;
    }
    if (others && i >= calls - 1) c.count = 2 + c.count % 600, c.in_place = false;
    if (lengths && i == broken_from) {
      differ(c, random);
    } else if (lengths && i > broken_from) {  // its two ends are in another order
      const Call &before = program[i - 1];
      c.kernel = before.kernel, c.type = before.type, c.reversed = before.reversed, c.count = before.count,
      c.budget = before.budget, c.in_place = false;
      c.from = before.from, c.to = before.to, c.said = before.expected, c.expected = before.said;
    }
    const bool gives_up = (alone && i >= alone_from) || (asymmetric && i == calls - 1);
    c.timeout = gives_up ? 1000000 : absent || abort ? 0 : 1000000000000;  // the last never passes
    prepare(c, seed * 7919 + i);
  }

  const int odd = others || asymmetric ? int(random() % world) : -1;  // the rank whose last call is another
  Refusal refusal{};
  if (impossible) refusal = spoil(program.back(), random);
  if (asymmetric) program.back().parts[odd].args.base.recv += 256;
  std::vector<std::vector<emulate::Launch>> streams(2 * world);
  size_t early = 0, ended = 0;  // launches of ranks that are not late
  for (int r = 0; r < world; r++) {
    if ((absent || abort) && r == world - 1) continue;
    for (int i = 0; i < calls; i++) {
      Call &c = program[i + (others && i == calls - 1 && r == odd)];
      if (&c == program.data() + alone_from && late >> r & 1)
        for (auto *stream : {&streams[r], &streams[world + r]})
          stream->push_back({"nothing", 1, 1, {}, [] {}, {}, [&] { return ended == early; }});
      if (c.kernel.coll == kDelivered) {
        deliver(c, r, streams[r], streams[world + r]);
        continue;
      }
      const bool mixed = c.to >= 0 || (c.kernel.coll == kAllToAllV && !impossible && c.seed % 3 == 0);
      if (gated(c, r)) streams[r].push_back(gate(c, r));
      void *entry = c.kernel.twin && c.seed >> (8 + r) & 1 ? c.kernel.twin : c.kernel.entry;
      streams[r].push_back(mixed ? suited(c, r, random) : launch(c, r, c.kernel.name, entry));
      if (meets(c.kernel)) streams[r].back().call = i;
      if (c.kernel.coll == kSignals || c.kernel.coll == kWindow) {
        c.parts[r].args.base.root = (r + 1) % world;
        Call *wait = new Call(c);
        shunt_kernel_args &a = wait->parts[r].args.base;
        a.bytes = 1, a.root = (r + world - 1) % world;
        if (c.kernel.coll == kWindow) a.recv = a.send + 256, a.send += 8;
        const char *name = c.kernel.coll == kWindow ? "shunt_window_wait" : "shunt_wait";
        streams[r].push_back(launch(*wait, r, name, ::entry(name)));
        // What a put has brought is there for who has waited for the signal behind it.
        if (const Call *before = &c - 1; i > 0 && before->kernel.coll == kCopy)
          streams[r].back().after = [before, r] {
            if (!aborted && !has_fault(r)) compare(*before, r, " behind its signal");
          };
      }
    }
  }
  if (abort) {
    emulate::run(streams, [] {
      if (emulate::count().turns < 3000) return false;
      abort_all();
      return true;
    });
    int ended = 0;  // ranks that had to wait: some have nothing to do with the one that is absent
    for (int r = 0; r < world - 1; r++) {
      const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT);
      ended += f->kind == SHUNT_FAULT_ABORTED;
      if (f->kind != SHUNT_FAULT_ABORTED && f->kind != SHUNT_FAULT_NONE)
        bad++, printf("WRONG rank %d: fault %u\n", r, f->kind);
    }
    if (ended == 0) bad++, printf("WRONG nobody was aborted\n");
    // However many wait, one of a rank's looks at the watch page, and not all the time. A turn is 100 nanoseconds.
    const emulate::Count count = emulate::count();
    if (count.looks > (count.turns * 100 / EMULATED_WATCH + 2) * world)
      bad++, printf("WRONG %lld looks at the watch pages\n", (long long)count.looks);
    printf("%lld turns after the abort\n", (long long)emulate::count().turns - 3000);
    return bad != 0;
  }
  if (asymmetric) {
    std::vector<int64_t> lasted(world);
    for (int r = 0; r < world; r++) {
      streams[r].back().before = [&, r] { lasted[r] = -emulate::count().turns; };
      streams[r].back().after = [&, r] { lasted[r] += emulate::count().turns; };
    }
    emulate::run(streams);
    judge(program.back(), odd, lasted);
    printf("world %d seed %u: %lld wrong\n", world, seed, (long long)bad);
    return bad != 0;
  }
  if (lengths || others || impossible) {
    emulate::run(streams, [] {
      for (const shunt_watch &w : watches)
        if (w.fault.kind != 0) abort_all();
      // The longest took 185,000.
      if (emulate::count().turns > 1000000) bad++, printf("WRONG nobody tells\n"), abort_all();
      return aborted;
    });
    if (impossible) judge(program.back(), refusal);
    else if (others) judge(program[calls - 1], program[calls], odd);
    else judge(program[broken_from], broken_from == calls - 1);
    printf("world %d seed %u: %s: %lld turns, %lld wrong\n", world, seed, program[broken_from].text().c_str(),
           (long long)emulate::count().turns, (long long)bad);
    return bad != 0;
  }
  for (int s = 0; s < 2 * world; s++)
    for (emulate::Launch &l : streams[s]) {
      if (!alone || late >> s % world & 1) continue;
      early++;
      l.after = [&ended, after = l.after] {
        ended++;
        if (after) after();
      };
    }
  emulate::run(streams);
  int gave_up = 0;
  for (int r = 0; r < world; r++) {
    gave_up += has_fault(r);
    // The host unmaps what it has withdrawn when these agree: not after a wait was given up.
    const shunt_counts *n = reinterpret_cast<const shunt_counts *>(emulate::memory(r, r) + SHUNT_OFF_COUNTS(world));
    if (has_fault(r) ? n->ended <= n->begun : n->begun == n->ended && n->decided == n->forgotten) continue;
    bad++, printf("WRONG rank %d: %llu blocks begun, %llu ended; %llu found, %llu forgotten\n", r,
                  (unsigned long long)n->begun, (unsigned long long)n->ended, (unsigned long long)n->decided,
                  (unsigned long long)n->forgotten);
  }
  if (const emulate::Count n = emulate::count(); apart && n.pieces * 3 > n.vectors)
    bad++, printf("WRONG %lld bytes in pieces, %lld in vectors\n", (long long)n.pieces, (long long)n.vectors);
  for (int i = 0; i < calls; i++)
    for (int r = 0; r < world; r++)
      if (i < alone_from || !has_fault(r)) compare(program[i], r, " at the end");
  // Whom a rank that is not late may name: who is, or whose stores are under way for that long, or who
  // has given up before it sent what this rank waits for.
  auto is_missing = [&](int r) {
    return late >> r & 1 || policy.stores == Policy::kLate || (!meets(program.back().kernel) && has_fault(r));
  };
  for (int r = 0; r < world; r++) {
    const shunt_fault *f = reinterpret_cast<const shunt_fault *>(emulate::memory(r, r) + SHUNT_OFF_FAULT);
    if (f->kind && !(alone && f->kind == SHUNT_FAULT_TIMEOUT))
      bad++, printf("WRONG rank %d: fault %u waiting for rank %d\n", r, f->kind, f->peer);
    else if (f->kind && (f->peer == r || !(late >> r & 1 || is_missing(f->peer))))
      bad++, printf("WRONG rank %d names rank %d, late are %x\n", r, f->peer, late);
  }
  printf("world %d seed %u order %d stores %d: %d calls, %lld turns, %lld stores held back, %d gave up, %lld wrong\n",
         world, seed, policy.order, policy.stores, calls, (long long)emulate::count().turns,
         (long long)emulate::count().stores, gave_up, (long long)bad);
  return bad != 0;
}
