// candidates.h: which kernels, with which grids, the benchmark tries for a case.
#pragma once

static const char *const kImageNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"};

static void publish() {}

// LL kernels: a thread a packet.
static void add_ll(std::vector<Candidate> &list, const std::string &name, long bytes, bool dependent = true) {
  long packets = std::max(1l, (bytes + 7) / 8);
  int most = variants ? 512 : 512;
  for (int t : variants ? std::vector<int>{128, 256, 512} : std::vector<int>{most}) {
    int threads = clamp((packets + 31) / 32 * 32, 32, t);
    add_kernel(list, name, clamp((packets + threads - 1) / threads, 1, SHUNT_MAX_BLOCKS), threads, 0, dependent);
  }
}

// LL128 kernels: a warp a unit, or two.
static void add_ll128(std::vector<Candidate> &list, const std::string &name, long bytes) {
  long units = std::max(1l, (bytes + 479) / 480);
  for (int warps : {4, 8, 16})
    for (int per : {1, 2}) {
      long need = (units + per - 1) / per;
      int w = clamp(need, 1, warps);
      add_kernel(list, name, clamp((need + w - 1) / w, 1, SHUNT_MAX_BLOCKS), w * 32);
    }
}

static void add_candidates(std::vector<Candidate> &list, const Case &c) {
  switch (c.coll) {
    case kAllReduce:
      if (c.bytes <= 512 << 10) {
        add_ll(list, "shunt_all_reduce_one_shot_ll_float32", c.bytes);
        if (c.bytes <= 2048) add_ll(list, "shunt_all_reduce_one_shot_ll_float32", c.bytes, false);
        add_ll128(list, "shunt_all_reduce_one_shot_ll128_float32", c.bytes);
      }
      if (c.bytes <= 32 << 20) add_ll128(list, "shunt_all_reduce_two_shot_ll128_float32", c.bytes / world);
      break;
    case kAllGather:
      if (c.block <= 512 << 10) add_ll(list, "shunt_all_gather_ll", c.block);
      if (c.block <= 8 << 20) add_ll128(list, "shunt_all_gather_ll128", c.block);
      break;
    case kReduceScatter:
      if (c.block <= 512 << 10) add_ll(list, "shunt_reduce_scatter_ll_float32", c.block);
      if (c.block <= 8 << 20) add_ll128(list, "shunt_reduce_scatter_ll128_float32", c.block);
      break;
    case kAllToAll:
      if (c.block <= 512 << 10) add_ll(list, "shunt_all_to_all_ll", c.block);
      if (c.block <= 8 << 20) add_ll128(list, "shunt_all_to_all_ll128", c.block);
      break;
    default:
      break;
  }
}
