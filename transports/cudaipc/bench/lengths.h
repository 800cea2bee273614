// lengths.h: the last rank's message to rank 0 is not as long as rank 0 expects, by
// counts on the device. Rank 0's kernel says so and ends. Part of check.cu.
#pragma once

// How many ranks have seen anything else.
static int64_t check_lengths() {
  int64_t silent = 0;
  const int64_t ends[][2] = {{16384, 32768}, {32768, 16384}, {3 << 20, 2 << 20}, {16384, 2 << 20}, {2 << 20, 16384}};
  for (const auto &lengths : ends) {
    reset();
    if (rank == 0 || rank == world - 1) {
      std::vector<int64_t> counts(4 * world);  // send counts and displacements, then those to receive
      if (rank == 0) counts[2 * world + world - 1] = lengths[1];
      else counts[0] = lengths[0];
      char *on_device = arena.own + kHalf - 4096;
      CHECK(cudaMemcpy(on_device, counts.data(), counts.size() * 8, cudaMemcpyHostToDevice));
      CHECK(cudaDeviceSynchronize());
      shunt_kernel_args_v v{};
      shunt_kernel_args &a = v.base;
      a.send = (uint64_t)arena.own, a.recv = (uint64_t)(arena.own + kHalf), v.counts = (uint64_t)on_device;
      a.abort = (uint64_t)watch, a.timeout = 5000000000ull, a.rank = rank, a.world = world;
      for (int r = 0; r < world; r++) a.region[r] = (uint64_t)region.of[r];
      double start = job::seconds();
      launch(find("shunt_all_to_all_v_long"), SHUNT_MAX_BLOCKS, SHUNT_MAX_THREADS, &v);
      if (rank == 0) {
        CHECK(cudaStreamSynchronize(stream));
        double took = job::seconds() - start;
        shunt_fault f = fault();
        silent += f.kind != SHUNT_FAULT_LENGTH || f.peer != world - 1 || watch->fault_own[0] != (uint64_t)lengths[1] || watch->fault_theirs[0] != (uint64_t)lengths[0] || took > 1;
        printf("lengths %ld and %ld: fault %u after %.0f us\n", (long)lengths[0], (long)lengths[1], f.kind, took * 1e6), fflush(stdout);
      }
    }
    job::barrier();
    abort_waits();  // the sender's
    CHECK(cudaStreamSynchronize(stream));
    job::barrier();  // nobody stores into memory that is cleared
  }
  silent = worst(silent);
  if (rank == 0 && silent) printf("WRONG lengths\n"), fflush(stdout);
  reset();
  return silent;
}
