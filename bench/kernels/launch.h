// launch.h: launches the kernels of images, and NCCL, as ways of doing a case.
#pragma once

#include "cases.h"

static void load_images(Images &f, const std::string &folder) {
  f.name = folder.substr(folder.find_last_of('/') + 1);
  f.libraries = job::load_images(folder);
  if (f.libraries.empty()) {
    fprintf(stderr, "no images in %s\n", folder.c_str());
    _exit(1);
  }
  f.region_bytes = SHUNT_REGION_BYTES(world), f.exports = SHUNT_OFF_EXPORTS, f.imports = SHUNT_OFF_IMPORTS;
  if (FILE *layout = fopen((folder + "/layout").c_str(), "r")) {
    int ranks;
    long bytes, exports, imports;
    while (fscanf(layout, "%d %ld %ld %ld", &ranks, &bytes, &exports, &imports) == 4)
      if (ranks == world) f.region_bytes = bytes, f.exports = exports, f.imports = imports;
    fclose(layout);
  }
  f.region = job::allocate(f.region_bytes);
}

static cudaKernel_t kernel(const std::string &name) {
  auto &known = now->known;
  auto it = known.find(name);
  if (it != known.end()) return it->second;
  for (auto lib : now->libraries) {
    cudaKernel_t k;
    if (cudaLibraryGetKernel(&k, lib, name.c_str()) == cudaSuccess) {
      cudaFuncSetAttribute((const void *)k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10);
      cudaGetLastError();
      return known[name] = k;
    }
  }
  cudaGetLastError();
  return known[name] = nullptr;
}

static shunt_kernel_args arguments(const Case &c, int slot) {
  shunt_kernel_args a{};
  a.send = (uint64_t)(send_arena.own + send_offset(c, slot));
  a.recv = (uint64_t)(recv_arena.own + recv_offset(c, slot));
  a.bytes = c.coll <= kBarrier ? 0 : c.block;
  a.timeout = 2000000000ull;
  a.rank = rank;
  a.world = world;
  a.root = c.root;
  for (int r = 0; r < world; r++) a.region[r] = (uint64_t)now->region.of[r];
  return a;
}

// spread: see kernels/device.cuh.
static void launch_kernel(cudaKernel_t k, int blocks, int threads, int dynamic, bool dependent, void *args,
                          bool spread = false) {
  cudaLaunchConfig_t config{};
  config.gridDim = spread ? dim3(2, blocks) : dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = dynamic;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  void *list[] = {args};
  CHECK(cudaLaunchKernelExC(&config, (const void *)k, list));
}

static int clamp(long v, long lo, long hi) { return int(std::max(lo, std::min(hi, v))); }

static void add_kernel(std::vector<Candidate> &list, const std::string &name, int blocks, int threads, int dynamic = 0,
                       bool dependent = true, bool spread = false) {
  cudaKernel_t k = kernel(name);
  if (!k) return;
  char label[160];
  const char *how = spread ? " spread" : dependent ? "" : " nodep";
  snprintf(label, sizeof label, "%s%s %dx%d", name.substr(6).c_str(), how, blocks, threads);
  for (auto &c : list)
    if (c.images == now && c.name == label) return;
  list.push_back({label, false, true, [=](const Case &c, int slot) {
                    shunt_kernel_args a = arguments(c, slot);
                    launch_kernel(k, blocks, threads, dynamic, dependent, &a, spread);
                  }});
}

// The same kernel as a dependent launch, and spread, as the library launches long ones.
static void add_both(std::vector<Candidate> &list, const std::string &name, int blocks, int threads) {
  add_kernel(list, name, blocks, threads);
  add_kernel(list, name, blocks, threads, 0, false, true);
}

static void add_nccl(std::vector<Candidate> &list, const Case &c, bool window) {
  if (!comm || c.coll == kNothing || c.coll == kBarrier) return;
  list.push_back({window ? "nccl window" : "nccl", window, false, [=](const Case &c, int slot) {
                    char *s = (window ? window_send : send_arena.own) + send_offset(c, slot);
                    char *r = (window ? window_recv : recv_arena.own) + recv_offset(c, slot);
                    long n = c.block / 4;
                    switch (c.coll) {
                    case kAllReduce:
                      NCCL_CHECK(nccl::AllReduce(s, r, n, nccl::kFloat32, nccl::kSum, comm, stream));
                      break;
                    case kAllGather: NCCL_CHECK(nccl::AllGather(s, r, n, nccl::kFloat32, comm, stream)); break;
                    case kReduceScatter:
                      NCCL_CHECK(nccl::ReduceScatter(s, r, n, nccl::kFloat32, nccl::kSum, comm, stream));
                      break;
                    case kAllToAll: NCCL_CHECK(nccl::AlltoAll(s, r, n, nccl::kFloat32, comm, stream)); break;
                    case kBroadcast: NCCL_CHECK(nccl::Broadcast(s, r, n, nccl::kFloat32, c.root, comm, stream)); break;
                    case kReduce:
                      NCCL_CHECK(nccl::Reduce(s, r, n, nccl::kFloat32, nccl::kSum, c.root, comm, stream));
                      break;
                    default:
                      NCCL_CHECK(nccl::GroupStart());
                      NCCL_CHECK(nccl::Send(s, n, nccl::kFloat32, (rank + 1) % world, comm, stream));
                      NCCL_CHECK(nccl::Recv(r, n, nccl::kFloat32, (rank + world - 1) % world, comm, stream));
                      NCCL_CHECK(nccl::GroupEnd());
                    }
                  }});
}
