/*
 * records.c abort|fail|long: two ranks over the stand-in for NCCL. Rank 0 is one collective ahead; then both abort, or
 * rank 1's next call fails, or rank 1 aborts after more calls than are kept.
 */
#include <stdbool.h>

#include "ranks.h"

int main(int argc, char **argv) {
  ncclComm_t comms[2], child;
  ncclUniqueId id = {"an id"};
  if (argc < 2)
    return 2;
  for (int rank = 0; rank < 2; rank++) {
    CHECK(ncclCommInitRank(&comms[rank], 2, id, rank));
    CHECK(ncclAllReduce(NULL, NULL, 300, 7, 0, comms[rank], NULL));
    CHECK(ncclSend(NULL, 1, 2, 1 - rank, comms[rank], NULL));
  }
  CHECK(ncclBroadcast(NULL, NULL, 5, 1, 1, comms[0], NULL));
  CHECK(ncclCommSplit(comms[0], 3, 0, &child, NULL));
  if (strcmp(argv[1], "fail") == 0) {
    ncclResult_t *result = dlsym(dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), "fake_result");
    *result = ncclRemoteError;
    WANT(ncclReduce(NULL, NULL, 8, 7, 2, 1, comms[1], NULL) == ncclRemoteError);
    *result = ncclSuccess;
    CHECK(ncclCommAbort(comms[1])); /* the first reason stays, also where it is aborted for it */
    return 0;
  }
  bool longer = strcmp(argv[1], "long") == 0;
  for (int i = 0; longer && i < 1000; i++)
    CHECK(ncclAllReduce(NULL, NULL, (size_t)i, 7, 0, comms[1], NULL));
  for (int rank = longer; rank < 2; rank++)
    CHECK(ncclCommAbort(comms[rank]));
  return 0;
}
