// lengths.h: counts on the device that are wrong. Rank 0's kernel says so and ends. Part
// of check.cu.
#pragma once

// This rank's counts, packed in rank order, of bytes.
struct Counts {
  std::vector<int64_t> send = std::vector<int64_t>(world), recv = send;
};

// Launches all_to_all_v with counts on the device. Rank 0 returns whether its kernel has
// told of anything but the given fault within a second.
static bool told_otherwise(const Counts &counts, const shunt_fault &want, std::vector<uint64_t> own, uint64_t theirs,
                           const char *what) {
  shunt_kernel_args_on_device d{};
  shunt_kernel_args &a = d.base;
  a.send = (uint64_t)arena.own, a.recv = (uint64_t)(arena.own + kHalf);
  a.abort = (uint64_t)watch, a.timeout = 5000000000ull, a.rank = rank, a.world = world;
  for (int r = 0; r < world; r++) a.region[r] = (uint64_t)region.of[r];
  d.send_counts = on_device(0, counts.send), d.recv_counts = on_device(2, counts.recv);
  d.element = 1, d.send_capacity = d.recv_capacity = kHalf;
  const double start = job::seconds();
  launch(find("shunt_all_to_all_v_on_device"), SHUNT_MAX_BLOCKS, SHUNT_MAX_THREADS, &d);
  if (rank != 0) return false;
  CHECK(cudaStreamSynchronize(stream));
  const double took = job::seconds() - start;
  const shunt_fault f = fault();
  printf("%s: fault %u after %.0f us\n", what, f.kind, took * 1e6), fflush(stdout);
  bool other = f.kind != want.kind || f.peer != want.peer || watch->fault_theirs[0] != theirs || took > 1;
  for (size_t i = 0; i < own.size(); i++) other = other || watch->fault_own[i] != own[i];
  return other;
}

// How many ranks have seen anything else.
static int64_t check_lengths() {
  int64_t silent = 0;
  const shunt_fault length{SHUNT_FAULT_LENGTH, world - 1, 0}, impossible{SHUNT_FAULT_COUNTS, world - 1, 0};
  auto end = [&] {
    job::barrier();
    abort_waits();  // the sender's
    CHECK(cudaStreamSynchronize(stream));
    job::barrier();  // nobody stores into memory that is cleared
  };
  // The last rank's message to rank 0 is not as long as rank 0 expects.
  const int64_t ends[][2] = {{16384, 32768}, {32768, 16384}, {3 << 20, 2 << 20}, {16384, 2 << 20}, {2 << 20, 16384}};
  for (const auto &lengths : ends) {
    reset();
    Counts c;
    if (rank == 0) c.recv[world - 1] = lengths[1];
    if (rank == world - 1) c.send[0] = lengths[0];
    char what[64];
    snprintf(what, sizeof what, "lengths %ld and %ld", (long)lengths[0], (long)lengths[1]);
    silent += told_otherwise(c, length, {(uint64_t)lengths[1]}, lengths[0], what);
    end();
  }
  // Rank 0 expects what cannot be from it.
  for (int64_t count : {int64_t(-1), kHalf + 1, INT64_MAX}) {
    reset();
    Counts c;
    if (rank == 0) c.recv[world - 1] = count;
    if (rank == world - 1) c.send[0] = 2 << 20;
    char what[64];
    snprintf(what, sizeof what, "count %ld", (long)count);
    silent += told_otherwise(c, impossible, {(uint64_t)count, 0, 1}, kHalf, what);
    end();
  }
  silent = worst(silent);
  if (rank == 0 && silent) printf("WRONG lengths\n"), fflush(stdout);
  reset();
  return silent;
}
