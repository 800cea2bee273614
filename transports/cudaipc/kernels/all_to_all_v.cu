// all_to_all_v.cu: every rank may send something to and receive something from
// every rank, itself included, of any length: all_to_all_v, and with zeros in
// place, all_gather_v, gather(v), scatter(v), send, recv and groups of them.
// What a pair does follows from that pair's bytes alone, and for long messages
// from the offer that the receiver makes. Who finds that the other end of a pair has
// another length says so; see channel.cuh. Memory that is sent must not overlap
// memory that is received, but a rank's own block may be in place.
//
// Short messages go through channels; some blocks serve each peer. For a long
// one the receiver first says where it may be stored, if the sender can reach
// that, and then all blocks of the sender store it there; otherwise it goes
// through the channel too.
//
// A rank all of whose messages are short, both ways, may launch all_to_all_v; any
// rank may launch all_to_all_v_long, which looks at every pair. What they do for
// a pair is the same, so ranks need not launch the same one. all_to_all_v_on_device is
// whichever suits, with counts that it reads from device memory: it stores and sends
// nothing if they cannot be.
//
// Grid of the last two: a power of two, equal on all ranks, of SHUNT_MAX_THREADS. Of the
// other: for each rank as many blocks (root) as the longest message has units, up to
// channel_blocks(world), then as many warps as it takes, up to SHUNT_MAX_WARPS;
// more do no harm. A lane is block number lane mod channel_blocks, so its number does not
// depend on the grid. all_to_all_v_in_turns does the same with fewer blocks than world *
// channel_blocks(world), equal on all ranks; root then is channel_blocks(world). It is a
// kernel apart because its loop costs 0.2 us.
#include "copy.cuh"
#include "direct.cuh"

namespace shunt {

// Blocks that serve one peer.
__device__ __forceinline__ int channel_blocks(int world) {
  return world * SHUNT_CHANNEL_BLOCKS <= SHUNT_MAX_BLOCKS ? SHUNT_CHANNEL_BLOCKS : SHUNT_MAX_BLOCKS / world;
}

// One direction of a pair: what moves, and how its units are dealt.
struct Flow {
  char *base;
  int64_t bytes, units;
  int lanes;
  // Many units are dealt to two lanes a warp, whose loads overlap. Both ends
  // see the same bytes, so they deal alike.
  __device__ __forceinline__ Flow(u64 address, int64_t displ, int64_t count, int warps)
      : base(reinterpret_cast<char *>(address) + displ),
        bytes(count),
        units((count + kUnit - 1) / kUnit),
        lanes(units > 4 * warps ? 2 * warps : warps) {}
  __device__ __forceinline__ int64_t share(int lane) const {
    return lane < lanes ? units_of_lane(units, lane, lanes) : 0;
  }
  __device__ __forceinline__ int64_t offset(int lane, int64_t k) const { return (lane + k * lanes) * kUnit; }
};

// How many units a warp has sent of its two lanes, ahead of the rest.
struct Ahead {
  int units[2];
};

// A warp serves both directions of its lanes, whichever can move, so that no two
// ranks can wait for each other; each lane reads ahead by one unit. alone says that the
// block waits for no other peer.
template <int kLanes, class Fenced>
__device__ __forceinline__ void serve_pair(const shunt_kernel_args &a, Fenced fenced, int peer, int lane, int warps,
    const Flow &out, const Flow &in, const Ahead &ahead, bool alone) {
  const Lane l(a, fenced);
  Outlet outlet[kLanes] = {Outlet(a, peer, lane, out.bytes)};
  Inlet inlet[kLanes] = {Inlet(a, peer, lane, in.bytes)};
  if (kLanes > 1) {
    outlet[kLanes - 1] = Outlet(a, peer, lane + warps, out.bytes);
    inlet[kLanes - 1] = Inlet(a, peer, lane + warps, in.bytes);
  }
  const u32 fault = earlier_fault(a);  // of an earlier kernel
  int64_t to_send[kLanes], to_receive[kLanes], sent[kLanes], received[kLanes], left = 0;
  word2 next[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; i++) {
    sent[i] = ahead.units[i], received[i] = 0;
    to_send[i] = out.share(lane + i * warps);
    to_receive[i] = in.share(lane + i * warps);
    left += to_send[i] - sent[i] + to_receive[i];
    if (sent[i] < to_send[i])
      next[i] = load_unit<uint8_t>(l, out.base, out.offset(lane + i * warps, sent[i]), out.bytes);
  }
#pragma unroll
  for (int i = 0; i < kLanes; i++) outlet[i].settle();
  if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return;
  Wait wait(a);
  while (left > 0) {
    bool moved = false;
#pragma unroll
    for (int i = 0; i < kLanes; i++)
      if (sent[i] < to_send[i] && outlet[i].ready()) {
        outlet[i].put(l, next[i]);
        if (++sent[i] < to_send[i])
          next[i] = load_unit<uint8_t>(l, out.base, out.offset(lane + i * warps, sent[i]), out.bytes);
        left--;
        moved = true;
      }
#pragma unroll
    for (int i = 0; i < kLanes; i++) {
      word2 w;
      if (received[i] < to_receive[i] && inlet[i].take(l, w)) {
        if (alone && received[i] == 0) heard_from_peers();
        store_unit<uint8_t>(l, in.base, in.offset(lane + i * warps, received[i]), in.bytes, w);
        received[i]++;
        left--;
        moved = true;
      }
    }
    if (!moved && __any_sync(~0u, wait.over(peer, inlet[0].next(), [&] {
          return lane == 0 && in.bytes > 0 && contradicted(a, peer, in.bytes);
        })))
      return;
  }
#pragma unroll
  for (int i = 0; i < kLanes; i++) {
    if (to_send[i] > 0) outlet[i].close();
    if (to_receive[i] > 0) inlet[i].close();
  }
}

// Bytes from which a receiver makes an offer. A message of 1 MiB takes less time through the
// channel, but beside messages that were offered it is the last. Two ranks have only each
// other's message beside it, and make none while both are shorter than kLongOfTwo.
constexpr int64_t kOffered = (1 << 20) / 4 * 5;
constexpr int64_t kLongOfTwo = (1 << 20) / 4 * 7;

// Whether there are offers for the messages of a pair of which the longer has so many bytes.
__device__ __forceinline__ bool is_long(int world, int64_t longer) {
  return longer >= (world == 2 ? kLongOfTwo : kOffered);
}

// Whether there is one for a message of so many bytes to a rank, or from it.
__device__ __forceinline__ bool is_offered(int world, const shunt_messages &m, int peer, int64_t bytes) {
  return bytes >= kOffered && is_long(world, max(m.send_count[peer], m.recv_count[peer]));
}

// What was read from device memory.
struct Reading {
  shunt_messages messages;
  enum { kImpossible, kShort, kLong } kind;  // what the longest message between ranks is
};

// Reads counts and displacements from device memory, for the whole block, into r. If one
// of them cannot be, that of the first such peer is told. One warp does it: each lane has
// an entry of the four arrays.
__device__ __forceinline__ void read_messages(const shunt_kernel_args_on_device &v, Reading &r) {
  static_assert(SHUNT_MAX_RANKS == 8 && sizeof(shunt_messages) == 32 * 8, "a lane for each entry");
  const shunt_kernel_args &a = v.base;
  const int lane = threadIdx.x, array = lane / 8, p = lane % 8, side = array / 2;
  if (lane < 32) {
    const bool used = p < a.world;
    const u64 from =
        array == 0 ? v.send_counts : array == 1 ? v.send_displs : array == 2 ? v.recv_counts : v.recv_displs;
    u64 read = 0;
    if (used && from != 0) read = load_relaxed(reinterpret_cast<const u64 *>(from) + p);
    u64 packed = 0;  // if it wraps, a count before this one cannot be
    for (int q = 0; q < a.world; q++) {
      const u64 n = __shfl_sync(~0u, read, side * 16 + q);
      if (q < p) packed += n;
    }
    const int64_t count = __shfl_sync(~0u, read, side * 16 + p), given = __shfl_sync(~0u, read, side * 16 + 8 + p);
    const int64_t displ = (side == 0 ? v.send_displs : v.recv_displs) == 0 ? packed : given;
    const int64_t room = side == 0 ? v.send_capacity : v.recv_capacity;
    // What has no elements may be anywhere.
    const bool possible = !used || (count >= 0 && displ >= 0 && count <= room && (count == 0 || displ <= room - count));
    const int64_t other = __shfl_xor_sync(~0u, count, 16);
    const bool both = __shfl_xor_sync(~0u, possible, 16) && possible;
    const bool differ = p == a.rank && both && count != other;
    const unsigned wrong = __ballot_sync(~0u, !possible || differ);
    const unsigned peers = (wrong | wrong >> 8 | wrong >> 16 | wrong >> 24) & 0xFF;
    const bool any_long = __any_sync(~0u, used && p != a.rank && is_long(a.world, count * v.element));
    if (wrong == 0)
      (&r.messages.send_count[0])[lane] = array % 2 == 0 ? count * v.element : count == 0 ? 0 : displ * v.element;
    else if (lane == __ffs(wrong & (0x01010101u << (__ffs(peers) - 1))) - 1)
      tell_contradiction(a, SHUNT_FAULT_COUNTS, p, 0,
          [&](volatile uint64_t *own_place, volatile uint64_t *their_place) {
            own_place[0] = count, own_place[1] = displ, own_place[2] = possible ? 2 : side;
            their_place[0] = possible ? other : room;
          });
    if (lane == 0) r.kind = wrong != 0 ? Reading::kImpossible : any_long ? Reading::kLong : Reading::kShort;
  }
  __syncthreads();
}

// The outcome of the offers, for the whole block.
struct Offers {
  u64 to[SHUNT_MAX_RANKS];        // where a long message to a rank goes; 0: through the channel
  bool landing[SHUNT_MAX_RANKS];  // a peer stores its long message here by itself
  u64 reference;                  // of the memory that long messages arrive in
  int64_t low, span;
  int64_t chunk[SHUNT_MAX_RANKS];  // of a message that goes past the channel, for each turn
};

// Thread p makes its offer to peer p first and only then waits for one: nobody
// waits for an offer that waits for another. In between is what need not wait for
// offers. The whole block gets false if it was given up.
template <class Between>
[[nodiscard]] __device__ __forceinline__ bool exchange_offers(const shunt_kernel_args &a, const shunt_messages &m,
    Offers &o, Between between) {
  const int p = threadIdx.x;
  const bool peer = p < a.world && p != a.rank;
  const int here = block_index() * SHUNT_MAX_RANKS + p, there = block_index() * SHUNT_MAX_RANKS + a.rank;
  u64 *made = reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_OFFERED) + here,
      *taken = reinterpret_cast<u64 *>(own(a) + SHUNT_OFF_ACCEPTED) + here;
  // Read while find_export reads, not behind it.
  const u32 fault = earlier_fault(a);  // of an earlier kernel
  u64 making = 0, taking = 0, incoming = 0, outgoing = 0;
  if (peer) {
    making = *made + 1;
    taking = *taken + 1;
    incoming = next_message(a, SHUNT_OFF_RECEIVED, p, m.recv_count[p]);
    outgoing = next_message(a, SHUNT_OFF_SENT, p, m.send_count[p]);
  }
  if (threadIdx.x == 0) {
    int64_t low = INT64_MAX, high = 0;
    for (int s = 0; s < a.world; s++)
      if (s != a.rank && is_offered(a.world, m, s, m.recv_count[s])) {
        low = min(low, m.recv_displ[s]);
        high = max(high, m.recv_displ[s] + m.recv_count[s]);
      }
    raise(&counts_of(a)->begun, 1);
    o.reference = 0;
    o.low = low;
    o.span = max(high - low, int64_t(0));
  }
  __syncthreads();
  if (o.span > 0) find_export(a, threadIdx.x, a.recv + o.low, o.span, &o.reference);
  if (__syncthreads_or(fault != SHUNT_FAULT_NONE)) return false;
  if (threadIdx.x == 0 && o.span > 0) {
    o.reference = same_for_all_blocks(a, 1, o.reference);
    if (o.reference == 0) miss(a, a.recv + o.low, o.span);
  }
  __syncthreads();
  if (peer) {
    o.to[p] = 0;
    o.landing[p] = false;
    if (is_offered(a.world, m, p, m.recv_count[p])) {
      const u64 reference = o.reference == 0 ? 0 : o.reference + (m.recv_displ[p] - o.low);
      // Release: what this stream did with recv before comes before the peer's
      // stores to it.
      fence_system();
      ll_store(a.region[p] + SHUNT_OFF_OFFER + there * 16, reference, ll_flag(making));
      ll_store(a.region[p] + SHUNT_OFF_TERMS + there * 16, incoming, ll_flag(making));
      *made = making;
      o.landing[p] = reference != 0;
    }
  }
  between();
  bool met = true;
  if (p == a.rank) o.to[p] = a.recv + m.recv_displ[p];
  if (peer) {
    if (is_offered(a.world, m, p, m.send_count[p])) {
      const u32 flag = ll_flag(taking);
      *taken = taking;
      void *pending = reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_PENDING + a.rank * 8);
      // The block that serves lane 0, whose count another one may find moved on if this
      // message goes through the channel.
      const bool says = block_index() == (p + a.rank) % a.world * channel_blocks(a.world) % block_count();
      auto is = [&](uint4 packet) { return packet.y == flag && packet.w == flag; };
      auto is_later = [&](uint4 packet) { return int((packet.y - flag) << 1) > 0; };
      uint4 offer, terms;
      bool offered, later, said = false;
      Wait wait(a);
      do {
        offer = load_packet(own(a) + SHUNT_OFF_OFFER + here * 16);
        terms = load_packet(own(a) + SHUNT_OFF_TERMS + here * 16);
        // Memory that was offered for another message is not this one's; units say for
        // themselves what they are of.
        offered = is(offer) && is(terms) && (ll_word(offer) == 0 || ll_word(terms) == outgoing);
        // Nobody makes another offer before what this block was offered has landed, so
        // the one that this block has missed was of nothing.
        later = is_later(offer);
      } while (!offered && !later && !wait.over(p, taking, [&] {
        // The receiver may wait for another message: it learns what this one is.
        // Release: that those before it have landed comes before.
        if (says && !said) store_release(pending, outgoing);
        said = says;
        // Or makes no offer as the message from there is a shorter one than was expected.
        return says && m.recv_count[p] > 0 && contradicted(a, p, m.recv_count[p]);
      }));
      met = offered || later;
      // Before the count of what has landed, which this thread stores.
      if (met && said) store_relaxed(pending, 0);
      fence_system();  // acquire: see above
      o.to[p] = offered ? import_address(a, p, ll_word(offer)) : 0;
    }
  }
  return !__syncthreads_or(!met);
}

// Waits until the long message of a peer has been stored here. Acquires: it is
// visible to what follows.
[[nodiscard]] __device__ __forceinline__ bool wait_landed(const shunt_kernel_args &a, int p, int64_t bytes) {
  const int64_t word = (block_index() * SHUNT_MAX_RANKS + p) * 8;
  const u64 offered = *reinterpret_cast<const u64 *>(own(a) + SHUNT_OFF_OFFERED + word);
  auto landed = [&] { return (long long)(load_acquire(own(a) + SHUNT_OFF_LANDED + word) - offered) >= 0; };
  Wait wait(a);
  while (!landed())
    if (wait.over(p, offered, [&] {
          // Acquire: what differs may be the message after one that has landed meanwhile.
          if (other_length(a, p, bytes) == 0) return false;
          fence_system();
          return !landed() && contradicted(a, p, bytes);
        }))
      return false;
  return true;
}

// Which pair block number `at` serves, of so many blocks for each rank, and which of its
// lanes a warp. Blocks of the same numbers serve a pair at both of its ends (peer + rank
// is alike), in the same order even where one end has fewer blocks for it: so one resident
// block suffices, and in step every rank sends to one.
struct Service {
  int peer, block, lane, warps;
  __device__ __forceinline__ Service(const shunt_kernel_args &a, int at, int blocks)
      : peer((at / blocks - a.rank + a.world) % a.world),
        block(at % blocks),
        lane((threadIdx.x >> 5) * channel_blocks(a.world) + block),
        warps(channel_blocks(a.world) * SHUNT_MAX_WARPS) {}
};

// Sends of a block's short message as much as there is room for, and waits for nothing.
__device__ __forceinline__ Ahead send_ahead(const shunt_kernel_args &a, const shunt_messages &m) {
  Ahead ahead{};
  if (block_index() >= a.world * channel_blocks(a.world)) return ahead;
  const Service s(a, block_index(), channel_blocks(a.world));
  if (s.peer == a.rank) return ahead;
  const int64_t count = m.send_count[s.peer];
  if (count == 0 || is_offered(a.world, m, s.peer, count)) return ahead;
  const Lane l(a);
  const Flow out(a.send, m.send_displ[s.peer], count, s.warps);
#pragma unroll 1
  for (int i = 0; i < 2; i++) {
    const int lane = s.lane + i * s.warps, n = int(out.share(lane));
    if (n == 0) break;
    Outlet outlet(a, s.peer, lane, out.bytes);
    word2 next = load_unit<uint8_t>(l, out.base, out.offset(lane, 0), out.bytes);
    outlet.settle();
    int sent = 0;
    while (sent < n && outlet.ready()) {
      outlet.put(l, next);
      if (++sent < n) next = load_unit<uint8_t>(l, out.base, out.offset(lane, sent), out.bytes);
    }
    outlet.close();
    ahead.units[i] = sent;
  }
  return ahead;
}

// The short messages of block number `at`, of so many blocks for each rank, which is also
// the one for what a rank sends itself. to and landing say whether a pair's message
// goes past the channel; with offers, so does what a rank sends itself.
template <class Fenced>
__device__ __forceinline__ void serve_channel(const shunt_kernel_args &a, Fenced fenced, const shunt_messages &m,
    const Offers *offers, const Ahead &ahead, int at, int blocks) {
  const Service s(a, at, blocks);
  const int peer = s.peer;
  const int64_t send_count = m.send_count[peer], recv_count = m.recv_count[peer];
  if (peer == a.rank) {
    const char *send = reinterpret_cast<const char *>(a.send) + m.send_displ[peer];
    if (!offers)
      copy_bytes(reinterpret_cast<char *>(a.recv) + m.recv_displ[peer], send, min(send_count, recv_count),
                 s.block * blockDim.x + threadIdx.x, blocks * blockDim.x);
    return;
  }
  const Flow out(a.send, m.send_displ[peer], offers && offers->to[peer] != 0 ? 0 : send_count, s.warps);
  const Flow in(a.recv, m.recv_displ[peer], offers && offers->landing[peer] ? 0 : recv_count, s.warps);
  if (out.lanes > s.warps || in.lanes > s.warps)
    serve_pair<2>(a, fenced, peer, s.lane, s.warps, out, in, ahead, offers == nullptr);
  else
    serve_pair<1>(a, fenced, peer, s.lane, s.warps, out, in, ahead, offers == nullptr);
}

// A grid of fewer blocks, which is then equal on all ranks, takes them in turns: all
// begin with the first, so it can go on. What was sent ahead belongs to a block's first.
__device__ __forceinline__ void serve_channels(const shunt_kernel_args &a, const shunt_messages &m,
    const Offers *offers, const Ahead &ahead, int blocks) {
#pragma unroll 1
  for (int at = block_index(); at < a.world * blocks; at += block_count())
    serve_channel(a, Asked(), m, offers, at == block_index() ? ahead : Ahead{}, at, blocks);
}

__device__ __forceinline__ void all_to_all_v(const shunt_kernel_args_v &v) {
  begin();
  if (block_index() >= v.base.world * v.base.root) return;
  for_either(v.base, [&](auto fenced) {
    serve_channel(v.base, fenced, v.messages, nullptr, {}, block_index(), v.base.root);
  });
}

__device__ __forceinline__ void all_to_all_v_in_turns(const shunt_kernel_args_v &v) {
  begin();
  serve_channels(v.base, v.messages, nullptr, {}, v.base.root);
}

// Vectors that a thread moves to a rank in a turn. 2 % faster than 4 from 32 MiB on.
constexpr int kTurnVectors = 8;

// The logarithm of a power of two.
template <int kNumber>
constexpr int kLog = 1 + kLog<kNumber / 2>;
template <>
constexpr int kLog<1> = 0;

__device__ __forceinline__ void exchange_messages(const shunt_kernel_args &a, const shunt_messages &m) {
  __shared__ Offers offers;
  Ahead ahead{};
  if (!exchange_offers(a, m, offers, [&] { ahead = send_ahead(a, m); })) return;
  const char *send = reinterpret_cast<const char *>(a.send);
  const int p = threadIdx.x;
  // All blocks store to all ranks by turns, so that no two ranks store to the same one
  // for long. In each turn every other rank gets the same part of its message, so that
  // the links are shared to the end; what this rank sends itself goes beside and behind.
  bool stored = false;
  int64_t longest = 0;
  auto count = [&](int to) {
    return to == a.rank ? min(m.send_count[to], m.recv_count[to]) : offers.to[to] != 0 ? m.send_count[to] : 0;
  };
  for (int to = 0; to < a.world; to++)
    if (to != a.rank) longest = max(longest, count(to));
  // A row is a vector for each thread of the grid. Both are powers of two: no divisions.
  const int row = __ffs(block_count()) - 1 + kLog<SHUNT_MAX_THREADS * 16>;
  const int turn_shift = row + kLog<kTurnVectors>;
  const int64_t full = int64_t(1) << turn_shift;
  const int64_t shared = (longest + full - 1) >> turn_shift,
                turns = max(shared, (count(a.rank) + full - 1) >> turn_shift);
  if (shared > 1) {
    if (p < a.world)
      offers.chunk[p] = p == a.rank
          ? full
          : int64_t((u32((count(p) + (int64_t(1) << row) - 1) >> row) + u32(shared) - 1) / u32(shared)) << row;
    __syncthreads();
  }
#pragma unroll 1
  for (int64_t turn = 0; turn < turns; turn++)
#pragma unroll 1
    for (int k = 1; k <= a.world; k++) {
      const int to = a.rank + k < a.world ? a.rank + k : a.rank + k - a.world;
      const int64_t chunk = shared > 1 ? offers.chunk[to] : full, at = turn * chunk;
      copy_bytes<kTurnVectors>(reinterpret_cast<char *>(offers.to[to]) + at, send + m.send_displ[to] + at,
                               min(chunk, count(to) - at),
                               int64_t(block_index()) * SHUNT_MAX_THREADS + threadIdx.x,
                               int64_t(block_count()) * SHUNT_MAX_THREADS);
      stored = stored || (to != a.rank && offers.to[to] != 0);
    }
  if (stored) {  // the same for the whole block
    __syncthreads();
    // Release: the block's stores come before the count.
    if (p < a.world && p != a.rank && offers.to[p] != 0)
      store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_LANDED +
                                             (block_index() * SHUNT_MAX_RANKS + a.rank) * 8),
                    reinterpret_cast<const u64 *>(own(a) + SHUNT_OFF_ACCEPTED)[block_index() * SHUNT_MAX_RANKS + p]);
  }

  serve_channels(a, m, &offers, ahead, channel_blocks(a.world));
  if (p == 0) forget_choice(a, block_count());
  // The count is there before a unit of the next message, whose length a peer that still
  // waits for the count would take for this one's.
  if (stored && p < a.world) fence_system();
  bool landed = true;
  if (p < a.world && p != a.rank && offers.landing[p]) landed = wait_landed(a, p, m.recv_count[p]);
  if (!__syncthreads_or(!landed) && p == 0) raise(&counts_of(a)->ended, 1);
}

__device__ __forceinline__ void all_to_all_v_long(const shunt_kernel_args_v &v) {
  begin();
  exchange_messages(v.base, v.messages);
}

__device__ __forceinline__ void all_to_all_v_on_device(const shunt_kernel_args_on_device &v) {
  begin();
  __shared__ Reading reading;
  read_messages(v, reading);
  if (reading.kind == Reading::kShort)
    serve_channels(v.base, reading.messages, nullptr, {}, channel_blocks(v.base.world));
  if (reading.kind == Reading::kLong) exchange_messages(v.base, reading.messages);
}

}  // namespace shunt

SHUNT_KERNEL_BYTES_OF(shunt_all_to_all_v, shunt::all_to_all_v, shunt_kernel_args_v)
SHUNT_KERNEL_BYTES_OF(shunt_all_to_all_v_in_turns, shunt::all_to_all_v_in_turns, shunt_kernel_args_v)
SHUNT_KERNEL_BYTES_OF(shunt_all_to_all_v_long, shunt::all_to_all_v_long, shunt_kernel_args_v)
SHUNT_KERNEL_BYTES_OF(shunt_all_to_all_v_on_device, shunt::all_to_all_v_on_device, shunt_kernel_args_on_device)
