// candidates.h: which kernels, with which grids, the benchmark tries for a case.
#pragma once

#include "launch.h"

// Makes the arenas reachable for direct kernels, as the host side does for the
// users' allocations.
static void publish() {
  shunt_export exports[2]{};
  job::Memory *memory[2] = {&send_arena, &recv_arena};
  for (int i = 0; i < 2; i++) {
    exports[i].base = (uint64_t)memory[i]->own;
    exports[i].bytes = memory[i]->bytes;
    exports[i].known = ~0ull;
    exports[i].generation = 1;
    for (int r = 0; r < world; r++)
      CHECK(cudaMemcpy(now->region.own + now->imports + (r * SHUNT_MAX_EXPORTS + i) * 8, &memory[i]->of[r], 8,
                       cudaMemcpyHostToDevice));
  }
  CHECK(cudaMemcpy(now->region.own + now->exports, exports, sizeof exports, cudaMemcpyHostToDevice));
  job::barrier();
}

// LL kernels: a thread a packet.
static void add_ll(std::vector<Candidate> &list, const std::string &name, long bytes, bool dependent = true) {
  long packets = std::max(1l, (bytes + 7) / 8);
  for (int t : variants ? std::vector<int>{128, 256, 512} : std::vector<int>{256, 512}) {
    int threads = clamp((packets + 31) / 32 * 32, 32, t);
    add_kernel(list, name, clamp((packets + threads - 1) / threads, 1, SHUNT_MAX_BLOCKS), threads, 0, dependent);
  }
}

// LL128 kernels: a warp a unit, until the grid is full.
static void add_ll128(std::vector<Candidate> &list, const std::string &name, long bytes) {
  long units = std::max(1l, (bytes + 479) / 480);
  for (int warps : {4, 8, 16}) {
    if (units > 32 * 64 && warps < 16) continue;
    int w = clamp(units, 1, warps);
    add_kernel(list, name, clamp((units + w - 1) / w, 1, SHUNT_MAX_BLOCKS), w * 32);
    if (variants && units > 1024 && warps == 16)
      for (int b : {32, 48}) add_kernel(list, name, b, w * 32);
  }
}

// Kernels between the users' buffers.
static void add_direct(std::vector<Candidate> &list, const std::string &name, long bytes) {
  if (bytes < 512 << 10) return;
  for (int b : variants ? std::vector<int>{24, 32, 48, 64} : std::vector<int>{32, 64}) add_both(list, name, b, 512);
}

// shunt_all_to_all_v as all_to_all, or as a ring of send and recv. Both kernels do any
// message, as long as all ranks launch the same.
static void add_v(std::vector<Candidate> &list, const Case &c, bool is_long) {
  const std::string name = is_long ? "all_to_all_v_long" : "all_to_all_v";
  cudaKernel_t k = kernel("shunt_" + name);
  if (!k) return;
  int most = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / world),
      units = clamp((c.block + 479) / 480, 1, most * SHUNT_MAX_WARPS);
  int blocks = is_long ? SHUNT_MAX_BLOCKS : world * std::min(units, most);
  int threads = is_long ? SHUNT_MAX_THREADS : (units + most - 1) / most * 32;
  for (bool spread : {false, true}) {
    if (spread && c.block < 1 << 20) continue;
    list.push_back({name + (spread ? " spread" : ""), false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args_v v{};
                    v.base = arguments(c, slot);
                    v.base.root = std::min(units, most);  // blocks for each rank
                    shunt_messages &m = v.messages;
                    if (c.coll == kSendRecv) {
                      m.send_count[(rank + 1) % world] = c.block;
                      m.recv_count[(rank + world - 1) % world] = c.block;
                    } else {
                      for (int p = 0; p < world; p++) {
                        m.send_count[p] = m.recv_count[p] = c.block;
                        m.send_displ[p] = m.recv_displ[p] = p * c.block;
                      }
                    }
                    launch_kernel(k, blocks, threads, 0, !spread, &v, spread);
                  }});
  }
}

// all_to_all with counts of bytes that the kernel reads from device memory.
static void add_on_device(std::vector<Candidate> &list, const Case &c) {
  cudaKernel_t k = kernel("shunt_all_to_all_v_on_device");
  if (!k) return;
  static std::map<long, uint64_t> counts;  // by block; packed in rank order
  uint64_t &at = counts[c.block];
  if (at == 0) {
    const std::vector<int64_t> each(world, c.block);
    CHECK(cudaMalloc((void **)&at, world * 8));
    CHECK(cudaMemcpy((void *)at, each.data(), world * 8, cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
  }
  const bool spread = c.block >= 16 << 20;
  list.push_back({"all_to_all_v_on_device", false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args_on_device d{arguments(c, slot), at, 0, at, 0, 1, c.block * world,
                                                  c.block * world};
                    launch_kernel(k, SHUNT_MAX_BLOCKS, SHUNT_MAX_THREADS, 0, !spread, &d, spread);
                  }});
}

static void add_v(std::vector<Candidate> &list, const Case &c) {
  if (variants && c.coll == kAllToAll) add_on_device(list, c);
  for (bool is_long : {false, true}) {
    const bool chosen = is_long == (c.block >= (world == 2 ? 7 << 18 : 5 << 18));
    if (chosen || (variants && (is_long ? c.block >= 1 << 20 : c.block <= 16 << 20))) add_v(list, c, is_long);
  }
}

// How the copy engines of a rank are driven: all peers at once, or one after the
// other, beginning with the next rank, so that each rank receives from one.
enum CopyOrder { kAtOnce, kInTurn, kInTurnByChunks, kInTurnInStep };
static const char *const kCopyOrders[] = {"at once", "in turn", "in turn, 16 MiB", "in turn, in step"};

// Copies by the copy engines straight into the peers' recv, between two
// barriers: what is possible where every rank knows every rank's addresses. All
// ranks use the same offsets here. For all_reduce, after a reduce_scatter into
// recv.
static void add_copy_engines(std::vector<Candidate> &list, const Case &c, CopyOrder order) {
  cudaKernel_t k = kernel("shunt_barrier"), copy = kernel("shunt_copy"),
               scatter = kernel("shunt_reduce_scatter_staged_float32");
  if (!k || !copy || (c.coll == kAllReduce && (!scatter || c.block % (16 * world) != 0))) return;
  static cudaStream_t side[SHUNT_MAX_RANKS];
  static cudaEvent_t fork, join[SHUNT_MAX_RANKS];
  if (!fork) {
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    for (int i = 0; i < SHUNT_MAX_RANKS; i++) {
      CHECK(cudaStreamCreateWithFlags(&side[i], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&join[i], cudaEventDisableTiming));
    }
  }
  char label[64];
  snprintf(label, sizeof label, "%s_copy_engines %s", kNames[c.coll], kCopyOrders[order]);
  list.push_back({label, false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args a = arguments(c, slot);
                    const bool spread = c.coll == kAllToAll, pair = c.coll == kSendRecv;
                    long block = c.coll == kAllReduce ? c.block / world : c.block;
                    char *send = (char *)a.send;
                    shunt_kernel_args local = a;
                    if (c.coll == kAllReduce) {
                      local.bytes = block;
                      local.recv += rank * block;
                      send = (char *)local.recv;
                      launch_kernel(scatter, 64, 512, 0, true, &local);
                    }
                    launch_kernel(k, 1, 32, 0, true, &a);
                    const int peers = pair ? 1 : world - 1, streams = order == kAtOnce ? peers : 1;
                    CHECK(cudaEventRecord(fork, stream));
                    for (int i = 0; i < streams; i++) CHECK(cudaStreamWaitEvent(side[i], fork, 0));
                    const long piece = order == kInTurnByChunks ? 16l << 20 : block;
                    for (long at = 0; at < block; at += piece)
                      for (int i = 0; i < peers; i++) {
                        const int p = (rank + i + 1) % world;
                        const long bytes = std::min(piece, block - at), to = pair ? 0 : rank * block;
                        CHECK(cudaMemcpyAsync(recv_arena.of[p] + recv_offset(c, slot) + to + at,
                                              send + (spread ? p * block : 0) + at, bytes, cudaMemcpyDeviceToDevice,
                                              side[order == kAtOnce ? i : 0]));
                        if (order == kInTurnInStep && i + 1 < peers) {
                          cudaStream_t main = stream;
                          stream = side[0];
                          launch_kernel(k, 1, 32, 0, false, &a);
                          stream = main;
                        }
                      }
                    for (int i = 0; i < streams; i++) CHECK(cudaEventRecord(join[i], side[i]));
                    if (!pair && c.coll != kAllReduce) {
                      local.send += spread ? rank * block : 0;
                      local.recv += rank * block;
                      launch_kernel(copy, 32, 512, 0, false, &local);
                    }
                    for (int i = 0; i < streams; i++) CHECK(cudaStreamWaitEvent(stream, join[i], 0));
                    launch_kernel(k, 1, 32, 0, true, &a);
                  }});
}
static void add_copy_engines(std::vector<Candidate> &list, const Case &c) {
  if (c.bytes < 8 << 20) return;
  if (c.coll == kSendRecv) return add_copy_engines(list, c, kInTurn);
  for (CopyOrder order : {kAtOnce, kInTurn, kInTurnByChunks, kInTurnInStep})
    if (order == kInTurn || (variants && world > 2)) add_copy_engines(list, c, order);
}

// Kernels that push through staging memory.
static void add_staged(std::vector<Candidate> &list, const std::string &name, long bytes) {
  if (bytes < 256 << 10) return;
  for (int b : variants ? std::vector<int>{16, 24, 32, 48, 64} : std::vector<int>{32, 64}) add_both(list, name, b, 512);
}

static void add_candidates(std::vector<Candidate> &list, const Case &c) {
  switch (c.coll) {
    case kNothing:  // what a kernel costs that does nothing
      for (bool dependent : {true, false}) add_kernel(list, "shunt_wait", 1, 32, 0, dependent);
      break;
    case kBarrier:
      add_kernel(list, "shunt_barrier", 1, 32);
      break;
    case kAllReduce:
      if (c.bytes <= 512 << 10) {
        add_ll(list, "shunt_all_reduce_one_shot_ll_float32", c.bytes);
        if (c.bytes <= 32) add_ll(list, "shunt_all_reduce_one_shot_ll_float32", c.bytes, false);
        add_ll128(list, "shunt_all_reduce_one_shot_ll128_float32", c.bytes);
      }
      add_ll128(list, "shunt_all_reduce_two_shot_ll128_float32", c.bytes / world);
      add_direct(list, "shunt_all_reduce_direct_float32", c.bytes);
      add_staged(list, "shunt_all_reduce_staged_float32", c.bytes);
      add_copy_engines(list, c);
      break;
    case kAllGather:
      if (c.block <= 256 << 10) add_ll(list, "shunt_all_gather_ll", c.block);
      add_ll128(list, "shunt_all_gather_ll128", c.block);
      add_direct(list, "shunt_all_gather_direct", c.bytes);
      add_copy_engines(list, c);
      break;
    case kReduceScatter:
      if (c.block <= 256 << 10) add_ll(list, "shunt_reduce_scatter_ll_float32", c.block);
      add_ll128(list, "shunt_reduce_scatter_ll128_float32", c.block);
      add_direct(list, "shunt_reduce_scatter_direct_float32", c.bytes);
      add_staged(list, "shunt_reduce_scatter_staged_float32", c.bytes);
      break;
    case kAllToAll:
      if (c.block <= 256 << 10) add_ll(list, "shunt_all_to_all_ll", c.block);
      add_ll128(list, "shunt_all_to_all_ll128", c.block);
      add_direct(list, "shunt_all_to_all_direct", c.bytes);
      add_v(list, c);
      add_copy_engines(list, c);
      break;
    case kBroadcast: {
      if (c.bytes <= 256 << 10) add_ll(list, "shunt_broadcast_ll", c.bytes);
      const job::Grid b = job::broadcast_grid(c.bytes, world);
      add_kernel(list, "shunt_broadcast_ll128", b.blocks, b.threads);
      if (c.bytes >= 512 << 10) add_both(list, "shunt_broadcast_direct", SHUNT_MAX_BLOCKS, SHUNT_MAX_THREADS);
      if (c.bytes >= 8 << 20 && world > 2) add_both(list, "shunt_broadcast_chain", SHUNT_MAX_BLOCKS, SHUNT_MAX_THREADS);
      break;
    }
    case kReduce:
      if (c.bytes <= 256 << 10) {
        add_ll(list, "shunt_reduce_one_shot_ll_float32", c.bytes);
        add_ll128(list, "shunt_reduce_one_shot_ll128_float32", c.bytes);
      }
      if (c.bytes <= 16 << 20)
        add_ll128(list, "shunt_reduce_two_shot_ll128_float32", c.bytes / (world == 2 ? 2 : world - 1));
      add_kernel(list, "shunt_reduce_ll128_float32",
                 std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / (world - 1)) * (world - 1), SHUNT_MAX_THREADS);
      add_staged(list, "shunt_reduce_staged_float32", c.bytes);
      break;
    case kSendRecv:
      add_v(list, c);
      add_copy_engines(list, c);
      break;
    default:
      break;
  }
}
