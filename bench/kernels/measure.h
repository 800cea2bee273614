// measure.h: checks the results of a case, and times its ways in turn.
#pragma once

#include "cases.h"

// Waits for the stream, and names what ran if it failed: ours or NCCL's.
static void finish(const Case &c, const Candidate &cand) {
  cudaError_t error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) return;
  fprintf(stderr, "rank %d: %s of %ld bytes by %s: %s\n", rank, kNames[c.coll], c.bytes, cand.label().c_str(),
          cudaGetErrorString(error));
  _exit(1);
}

static long check_slot(const Case &c, const Candidate &cand, int slot, unsigned seed, bool run) {
  char *s = (cand.window ? window_send : send_arena.own) + send_offset(c, slot);
  char *r = (cand.window ? window_recv : recv_arena.own) + recv_offset(c, slot);
  if (run) {
    fill<<<256, 256, 0, stream>>>((float *)s, c.send_bytes / 4, rank, seed);
    poison<<<256, 256, 0, stream>>>((unsigned *)(r - kGuard), (c.recv_bytes + 2 * kGuard) / 4);
    CHECK(cudaStreamSynchronize(stream));
    job::barrier();
    cand.launch(c, slot);
  }
  CHECK(cudaMemsetAsync(wrong, 0, 8, stream));
  bool reduces = c.coll == kAllReduce || c.coll == kReduce || c.coll == kReduceScatter;
  verify<<<256, 256, 0, stream>>>((unsigned *)r, c.recv_bytes / 4, c.block / 4, kGuard / 4, c.coll, rank, world, c.root,
                                  seed, reduces && !cand.ours ? 1e-5f : 0, wrong);
  unsigned long long bad;
  CHECK(cudaMemcpyAsync(&bad, wrong, 8, cudaMemcpyDeviceToHost, stream));
  finish(c, cand);
  shunt_fault fault;
  CHECK(cudaMemcpy(&fault, cand.images->region.own + SHUNT_OFF_FAULT, sizeof fault, cudaMemcpyDeviceToHost));
  if (fault.kind != 0) {
    fprintf(stderr, "rank %d: %s, %ld bytes: fault %u waiting for rank %d epoch %lu\n", rank, cand.label().c_str(),
            c.bytes, fault.kind, fault.peer, (unsigned long)fault.epoch);
    _exit(2);
  }
  return (long)bad;
}

static double max_over_ranks(double v) {
  job::shared->value[rank][0] = v;
  job::barrier();
  double m = 0;
  for (int r = 0; r < world; r++) m = std::max(m, job::shared->value[r][0]);
  job::barrier();
  return m;
}

struct Result {
  double median = 0, p99 = 0;
  long wrong = 0;
};

static std::vector<Result> measure(const Case &c, const std::vector<Candidate> &list) {
  int ops = c.bytes <= (1 << 20) ? 40 : c.bytes <= (32 << 20) ? 10 : c.bytes <= (256 << 20) ? 3 : 2;
  if (ops > 1) ops = (ops + 1) / 2 * 2;
  std::vector<cudaGraphExec_t> graphs(list.size());
  std::vector<Result> results(list.size());
  std::vector<std::vector<double>> times(list.size());
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  static unsigned seed = 1;
  seed += 1000;
  for (size_t k = 0; k < list.size(); k++) {
    for (int slot = 0; slot < c.slots; slot += std::max(1, c.slots - 1))
      results[k].wrong += check_slot(c, list[k], slot, seed + slot, true);
    results[k].wrong = (long)max_over_ranks(results[k].wrong);
    if (results[k].wrong || eager) continue;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < ops; i++) list[k].launch(c, i % c.slots);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&graphs[k], graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphUpload(graphs[k], stream));
  }
  int rounds = c.bytes <= (8 << 20) ? samples : std::max(5, samples / 3);
  for (int s = -2; s < rounds; s++)
    for (size_t k = 0; k < list.size(); k++) {
      if (results[k].wrong) continue;
      gate_count++;
      job::barrier();
      gate<<<1, 1, 0, stream>>>(gate_word, gate_count);
      CHECK(cudaEventRecord(start, stream));
      if (eager)
        for (int i = 0; i < ops; i++) list[k].launch(c, i % c.slots);
      else
        CHECK(cudaGraphLaunch(graphs[k], stream));
      CHECK(cudaEventRecord(stop, stream));
      job::barrier();
      *(volatile unsigned *)gate_word = gate_count;
      finish(c, list[k]);
      float ms;
      CHECK(cudaEventElapsedTime(&ms, start, stop));
      if (s >= 0) times[k].push_back(ms * 1e3 / ops);
    }
  for (size_t k = 0; k < list.size(); k++) {
    if (results[k].wrong) continue;
    memcpy(job::shared->value[rank], times[k].data(), times[k].size() * sizeof(double));
    job::barrier();
    std::vector<double> slowest;
    for (size_t s = 0; s < times[k].size(); s++) {
      double m = 0;
      for (int r = 0; r < world; r++) m = std::max(m, job::shared->value[r][s]);
      slowest.push_back(m);
    }
    job::barrier();
    std::sort(slowest.begin(), slowest.end());
    results[k].median = slowest[slowest.size() / 2];
    results[k].p99 = slowest[std::min(slowest.size() - 1, slowest.size() * 99 / 100)];
    // A replay over poisoned memory must be right in the first buffer too: it
    // was filled last with this seed, whatever the candidate.
    if (graphs[k]) {
      char *r = (list[k].window ? window_recv : recv_arena.own) + recv_offset(c, 0);
      poison<<<256, 256, 0, stream>>>((unsigned *)(r - kGuard), (c.recv_bytes + 2 * kGuard) / 4);
      CHECK(cudaGraphLaunch(graphs[k], stream));
      results[k].wrong = (long)max_over_ranks(check_slot(c, list[k], 0, seed, false));
      CHECK(cudaGraphExecDestroy(graphs[k]));
    }
  }
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(stop));
  return results;
}
