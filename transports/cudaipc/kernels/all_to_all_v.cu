// all_to_all_v.cu: every rank may send something to and receive something from
// every rank, itself included, of any length: all_to_all_v, and with zeros in
// place, all_gather_v, gather(v), scatter(v), send, recv and groups of them.
// What a pair does follows from that pair's bytes alone. Memory that is sent
// must not overlap memory that is received, but a rank's own block may be in
// place.
//
// Grid: world * channel_blocks(world) blocks of SHUNT_MAX_THREADS.
#include "channel.cuh"
#include "copy.cuh"

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
      : base(reinterpret_cast<char *>(address) + displ), bytes(count), units((count + kUnit - 1) / kUnit), lanes(units > 4 * warps ? 2 * warps : warps) {}
  __device__ __forceinline__ int64_t share(int lane) const { return lane < lanes ? units_of_lane(units, lane, lanes) : 0; }
  __device__ __forceinline__ int64_t offset(int lane, int64_t k) const { return (lane + k * lanes) * kUnit; }
};

// A warp serves both directions of its lanes, whichever can move, so that no two
// ranks can wait for each other; each lane reads ahead by one unit.
template <int kLanes>
__device__ __forceinline__ void serve_pair(const shunt_kernel_args &a, int peer, int lane, int warps, const Flow &out, const Flow &in) {
  const Lane l;
  Outlet outlet[kLanes] = {Outlet(a, peer, lane)};
  Inlet inlet[kLanes] = {Inlet(a, peer, lane)};
  if (kLanes > 1) {
    outlet[kLanes - 1] = Outlet(a, peer, lane + warps);
    inlet[kLanes - 1] = Inlet(a, peer, lane + warps);
  }
  int64_t to_send[kLanes], to_receive[kLanes], sent[kLanes], received[kLanes], left = 0;
  word2 next[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; i++) {
    sent[i] = received[i] = 0;
    to_send[i] = out.share(lane + i * warps);
    to_receive[i] = in.share(lane + i * warps);
    left += to_send[i] + to_receive[i];
    if (to_send[i] > 0) next[i] = load_unit<uint8_t>(l, out.base, out.offset(lane + i * warps, 0), out.bytes);
  }
  Wait wait(a);
  while (left > 0) {
    bool moved = false;
#pragma unroll
    for (int i = 0; i < kLanes; i++)
      if (sent[i] < to_send[i] && outlet[i].ready()) {
        outlet[i].put(l, next[i]);
        if (++sent[i] < to_send[i]) next[i] = load_unit<uint8_t>(l, out.base, out.offset(lane + i * warps, sent[i]), out.bytes);
        left--;
        moved = true;
      }
#pragma unroll
    for (int i = 0; i < kLanes; i++) {
      word2 w;
      if (received[i] < to_receive[i] && inlet[i].take(l, w)) {
        store_unit<uint8_t>(l, in.base, in.offset(lane + i * warps, received[i]), in.bytes, w);
        received[i]++;
        left--;
        moved = true;
      }
    }
    if (!moved && __any_sync(~0u, wait.over(peer, inlet[0].next()))) break;
  }
#pragma unroll
  for (int i = 0; i < kLanes; i++) {
    if (to_send[i] > 0) outlet[i].close();
    if (to_receive[i] > 0) inlet[i].close();
  }
}

__device__ __forceinline__ void all_to_all_v(const shunt_kernel_args_v &v) {
  begin();
  const shunt_kernel_args &a = v.base;
  const int blocks = channel_blocks(a.world);
  const int peer = (a.rank + blockIdx.x / blocks) % a.world, block = blockIdx.x % blocks;
  int64_t send_count, send_displ, recv_count, recv_displ;
  if (v.counts != 0) {
    const int64_t *c = reinterpret_cast<const int64_t *>(v.counts) + peer;
    send_count = c[0], send_displ = c[a.world], recv_count = c[2 * a.world], recv_displ = c[3 * a.world];
  } else {
    send_count = v.send_count[peer], send_displ = v.send_displ[peer];
    recv_count = v.recv_count[peer], recv_displ = v.recv_displ[peer];
  }
  const int warps = blocks * (blockDim.x >> 5), lane = (threadIdx.x >> 5) * blocks + block;
  const Flow out(a.send, send_displ, send_count, warps), in(a.recv, recv_displ, recv_count, warps);
  if (peer == a.rank)
    copy_bytes(in.base, out.base, min(send_count, recv_count), block * blockDim.x + threadIdx.x, blocks * blockDim.x);
  else if (out.lanes > warps || in.lanes > warps)
    serve_pair<2>(a, peer, lane, warps, out, in);
  else
    serve_pair<1>(a, peer, lane, warps, out, in);
}

}  // namespace shunt

extern "C" __global__ void __launch_bounds__(SHUNT_MAX_THREADS, 1) shunt_all_to_all_v(const __grid_constant__ shunt_kernel_args_v args) {
  shunt::all_to_all_v(args);
}
