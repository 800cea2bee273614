// bench.cu: times the kernels against NCCL's best mode, interleaved, and checks
// every result. One process per GPU. The script run starts it. Several folders of
// images, of other sources too, take turns in one run; the script images makes them.
#include <sstream>

#include "candidates.h"
#include "measure.h"

static double bus_factor(Collective c) {
  double n = world;
  switch (c) {
    case kAllReduce: return 2 * (n - 1) / n;
    case kAllGather:
    case kReduceScatter:
    case kAllToAll: return (n - 1) / n;
    default: return 1;
  }
}

// A line of the table: the best time of each folder's kernels.
static void add_row(FILE *table, const Case &c, const std::vector<Candidate> &list, const std::vector<Result> &results,
                    double nccl) {
  fprintf(table, "%-14s %9ld %7.2f", kNames[c.coll], c.bytes, nccl);
  for (Images &f : folders) {
    double best = 0;
    long wrong = 0;
    for (size_t k = 0; k < list.size(); k++) {
      if (!list[k].ours || list[k].images != &f) continue;
      wrong += results[k].wrong;
      if (!results[k].wrong && (best == 0 || results[k].median < best)) best = results[k].median;
    }
    if (wrong) fprintf(table, " %9s", "WRONG");
    else if (best) fprintf(table, " %9.2f", best);
    else fprintf(table, " %9s", "-");
  }
  fprintf(table, "\n");
  fflush(table);
}

int main(int argc, char **argv) {
  int ranks = 0;
  for (int i = 1; i < argc; i++) {
    std::string s = argv[i];
    auto next = [&]() { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (s == "--ranks") ranks = atoi(next().c_str());
    else if (s == "--images") images = next();
    else if (s == "--nccl") nccl_path = next();
    else if (s == "--only") only = next();
    else if (s == "--min") min_bytes = atol(next().c_str());
    else if (s == "--max") max_bytes = atol(next().c_str());
    else if (s == "--samples") samples = atoi(next().c_str());
    else if (s == "--json") json_path = next();
    else if (s == "--table") table_path = next();
    else if (s == "--eager") eager = true;
    else if (s == "--variants") variants = true;
    else {
      fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (ranks < 2 || ranks > job::kMaxRanks) {
    fprintf(stderr, "--ranks must be 2 to %d\n", job::kMaxRanks);
    return 2;
  }
  job::start(ranks);
  CHECK(cudaSetDevice(rank));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  arena_bytes = 2 * std::min(max_bytes, 1l << 30) + (64 << 20);
  send_arena = job::allocate(arena_bytes);
  recv_arena = job::allocate(arena_bytes);
  std::stringstream list(images);
  for (std::string folder; std::getline(list, folder, ',');) load_images(folders.emplace_back(), folder);
  for (Images &f : folders) {
    now = &f;
    publish();
  }
  CHECK(cudaHostAlloc(&gate_word, 64, cudaHostAllocMapped));
  *gate_word = 0;
  CHECK(cudaMalloc(&wrong, 8));
  if (!nccl_path.empty() && nccl::load(nccl_path.c_str())) {
    nccl::UniqueId id;
    if (rank == 0) {
      NCCL_CHECK(nccl::GetUniqueId(&id));
      memcpy(job::shared->unique_id, &id, sizeof id);
    }
    job::barrier();
    memcpy(&id, job::shared->unique_id, sizeof id);
    NCCL_CHECK(nccl::CommInitRank(&comm, world, id, rank));
    nccl::Window w;
    NCCL_CHECK(nccl::MemAlloc((void **)&window_send, arena_bytes));
    NCCL_CHECK(nccl::MemAlloc((void **)&window_recv, arena_bytes));
    NCCL_CHECK(nccl::CommWindowRegister(comm, window_send, arena_bytes, &w, nccl::kSymmetric));
    NCCL_CHECK(nccl::CommWindowRegister(comm, window_recv, arena_bytes, &w, nccl::kSymmetric));
  }
  FILE *table = rank == 0 && !table_path.empty() ? fopen(table_path.c_str(), "a") : nullptr;
  if (table) {
    fprintf(table, "%-14s %9s %7s", "", "bytes", "nccl");
    for (Images &f : folders) fprintf(table, " %9s", f.name.c_str());
    fprintf(table, "\n");
  }
  FILE *json = rank == 0 && !json_path.empty() ? fopen(json_path.c_str(), "a") : nullptr;
  int bad = 0;
  for (int coll = 0; coll < kCollectives; coll++) {
    if (!only.empty() && (',' + only + ',').find(',' + std::string(kNames[coll]) + ',') == std::string::npos) continue;
    if (rank == 0)
      printf("\n%s, %d GPUs, %s, us (median, p99)\n%12s %9s %9s %9s %9s %6s %8s  %s\n", kNames[coll], world,
             eager ? "eager" : "graph", "bytes", "nccl", "window", "ours", "p99", "ratio", "busbw", "best");
    for (long bytes = min_bytes; bytes <= max_bytes; bytes *= 4) {
      if (coll <= kBarrier && bytes > min_bytes) break;
      Case c;
      make_case(c, Collective(coll), bytes);
      std::vector<Candidate> list;
      for (Images &f : folders) {
        now = &f;
        add_candidates(list, c);
      }
      add_nccl(list, c, false);
      bool has_window = coll == kAllReduce || coll == kAllGather || coll == kReduceScatter;
      if (has_window) add_nccl(list, c, true);
      auto results = measure(c, list);
      if (rank != 0) continue;
      double plain = 0, window = 0;
      int best = -1;
      for (size_t k = 0; k < list.size(); k++) {
        if (results[k].wrong) {
          printf("  WRONG %s: %ld elements\n", list[k].label().c_str(), results[k].wrong);
          bad = 1;
          continue;
        }
        if (list[k].name == "nccl") plain = results[k].median;
        else if (list[k].window) window = results[k].median;
        else if (best < 0 || results[k].median < results[best].median) best = int(k);
        if (json)
          fprintf(json,
                  "{\"collective\":\"%s\",\"ranks\":%d,\"mode\":\"%s\",\"bytes\":%ld,"
                  "\"algorithm\":\"%s\",\"us\":%.3f,\"p99\":%.3f}\n",
                  kNames[coll], world, eager ? "eager" : "graph", c.bytes, list[k].label().c_str(), results[k].median,
                  results[k].p99);
      }
      double theirs = plain && window ? std::min(plain, window) : plain;
      if (best >= 0)
        printf("%12ld %9.2f %9.2f %9.2f %9.2f %6.2f %8.1f  %s\n", c.bytes, plain, window, results[best].median,
               results[best].p99, results[best].median > 0 ? theirs / results[best].median : 0,
               c.bytes * bus_factor(c.coll) / results[best].median / 1e3, list[best].label().c_str());
      if (table) add_row(table, c, list, results, theirs);
      if (variants) {
        printf("            ");
        for (size_t k = 0; k < list.size(); k++)
          if (list[k].ours && !results[k].wrong) printf(" [%s %.2f]", list[k].label().c_str(), results[k].median);
        printf("\n");
      }
      fflush(stdout);
    }
  }
  if (table) fclose(table);
  if (json) fclose(json);
  job::barrier();
  fflush(stdout);
  _exit(bad);
}
