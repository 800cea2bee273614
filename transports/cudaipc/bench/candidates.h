// candidates.h: which kernels, with which grids, the benchmark tries for a case.
#pragma once

static const char *const kImageNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast", "reduce", "barrier", "one_sided"};

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
      CHECK(cudaMemcpy(region.own + SHUNT_OFF_IMPORTS + (r * SHUNT_MAX_EXPORTS + i) * 8, &memory[i]->of[r], 8, cudaMemcpyHostToDevice));
  }
  CHECK(cudaMemcpy(region.own + SHUNT_OFF_EXPORTS, exports, sizeof exports, cudaMemcpyHostToDevice));
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
    if (units > 64 * 64 && warps < 16) continue;
    int w = clamp(units, 1, warps);
    add_kernel(list, name, clamp((units + w - 1) / w, 1, SHUNT_MAX_BLOCKS), w * 32);
    if (variants && units > 1024 && warps == 16)
      for (int b : {32, 48}) add_kernel(list, name, b, w * 32);
  }
}

// Kernels between the users' buffers.
static void add_direct(std::vector<Candidate> &list, const std::string &name, long bytes) {
  if (bytes < 512 << 10) return;
  for (int b : {24, 32, 48, 64}) add_kernel(list, name, b, 512);
  add_kernel(list, name, 64, 256);
}

// shunt_all_to_all_v as all_to_all, or as a ring of send and recv.
static void add_v(std::vector<Candidate> &list, const Case &c) {
  cudaKernel_t k = kernel(c.block >= 1 << 20 ? "shunt_all_to_all_v_long" : "shunt_all_to_all_v");
  if (!k) return;
  int blocks = std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / world) * world;
  list.push_back({c.block >= 1 << 20 ? "all_to_all_v_long" : "all_to_all_v", false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args_v v{};
                    v.base = arguments(c, slot);
                    if (c.coll == kSendRecv) {
                      v.send_count[(rank + 1) % world] = c.block;
                      v.recv_count[(rank + world - 1) % world] = c.block;
                    } else {
                      for (int p = 0; p < world; p++) {
                        v.send_count[p] = v.recv_count[p] = c.block;
                        v.send_displ[p] = v.recv_displ[p] = p * c.block;
                      }
                    }
                    launch_kernel(k, blocks, SHUNT_MAX_THREADS, 0, true, &v);
                  }});
}

// Copies by the copy engines straight into the peers' recv, between two
// barriers: what is possible where every rank knows every rank's addresses. All
// ranks use the same offsets here.
static void add_copy_engines(std::vector<Candidate> &list, const Case &c, int ways) {
  cudaKernel_t k = kernel("shunt_barrier"), copy = kernel("shunt_copy");
  if (!k || !copy) return;
  static cudaStream_t side[16];
  static cudaEvent_t fork, join[16];
  if (!fork) {
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    for (int i = 0; i < 16; i++) {
      CHECK(cudaStreamCreateWithFlags(&side[i], cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&join[i], cudaEventDisableTiming));
    }
  }
  char label[64];
  snprintf(label, sizeof label, "%s_copy_engines x%d", kNames[c.coll], ways);
  list.push_back({label, false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args a = arguments(c, slot);
                    char *send = (char *)a.send;
                    long own = c.coll == kAllToAll ? rank * c.block : 0;
                    launch_kernel(k, 1, 32, 0, true, &a);
                    CHECK(cudaEventRecord(fork, stream));
                    int n = 0;
                    for (int i = 1; i < world; i++)
                      for (int w = 0; w < ways; w++, n++) {
                        int p = (rank + i) % world;
                        long piece = (c.block / ways + 511) / 512 * 512, at = std::min(c.block, w * piece), bytes = std::min(piece, c.block - at);
                        CHECK(cudaStreamWaitEvent(side[n], fork, 0));
                        if (bytes > 0)
                          CHECK(cudaMemcpyAsync(recv_arena.of[p] + recv_offset(c, slot) + rank * c.block + at, send + (c.coll == kAllToAll ? p * c.block : 0) + at, bytes, cudaMemcpyDeviceToDevice, side[n]));
                        CHECK(cudaEventRecord(join[n], side[n]));
                      }
                    shunt_kernel_args local = a;
                    local.send += own;
                    local.recv += rank * c.block;
                    launch_kernel(copy, 32, 512, 0, false, &local);
                    for (int i = 0; i < n; i++) CHECK(cudaStreamWaitEvent(stream, join[i], 0));
                    launch_kernel(k, 1, 32, 0, true, &a);
                  }});
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
      break;
    case kAllGather:
      if (c.block <= 256 << 10) add_ll(list, "shunt_all_gather_ll", c.block);
      add_ll128(list, "shunt_all_gather_ll128", c.block);
      add_direct(list, "shunt_all_gather_direct", c.bytes);
      if (c.bytes >= 2 << 20)
        for (int ways : {1}) add_copy_engines(list, c, ways);
      break;
    case kReduceScatter:
      if (c.block <= 256 << 10) add_ll(list, "shunt_reduce_scatter_ll_float32", c.block);
      add_ll128(list, "shunt_reduce_scatter_ll128_float32", c.block);
      add_direct(list, "shunt_reduce_scatter_direct_float32", c.bytes);
      break;
    case kAllToAll:
      if (c.block <= 256 << 10) add_ll(list, "shunt_all_to_all_ll", c.block);
      add_ll128(list, "shunt_all_to_all_ll128", c.block);
      add_direct(list, "shunt_all_to_all_direct", c.bytes);
      add_v(list, c);
      if (c.bytes >= 2 << 20)
        for (int ways : {1}) add_copy_engines(list, c, ways);
      break;
    case kBroadcast: {
      if (c.bytes <= 256 << 10) add_ll(list, "shunt_broadcast_ll", c.bytes);
      int blocks = std::min(SHUNT_CHANNEL_BLOCKS, (SHUNT_MAX_BLOCKS - 8) / (world - 1));
      add_kernel(list, "shunt_broadcast_ll128", blocks * (world - 1) + 8, SHUNT_MAX_THREADS);
      break;
    }
    case kReduce:
      if (c.bytes <= 256 << 10) {
        add_ll(list, "shunt_reduce_one_shot_ll_float32", c.bytes);
        add_ll128(list, "shunt_reduce_one_shot_ll128_float32", c.bytes);
      }
      if (c.bytes <= 8 << 20) add_ll128(list, "shunt_reduce_two_shot_ll128_float32", c.bytes / world);
      add_kernel(list, "shunt_reduce_ll128_float32", std::min(SHUNT_CHANNEL_BLOCKS, SHUNT_MAX_BLOCKS / (world - 1)) * (world - 1), SHUNT_MAX_THREADS);
      add_direct(list, "shunt_reduce_direct_float32", c.bytes);
      break;
    case kSendRecv:
      add_v(list, c);
      break;
    default:
      break;
  }
}
