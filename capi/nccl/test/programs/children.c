/*
 * children.c: two ranks of one thread split and shrink over the stand-in for NCCL, which writes the children late. One
 * sits the first split out.
 */
#include "fake.h"
#include "ranks.h"

static ncclComm_t comms[2], children[2];

static void *found(const char *name) {
  return dlsym(dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), name);
}

static void destroy(void) {
  for (int i = 0; i < 2; i++)
    CHECK(ncclCommDestroy(children[i]));
}

/* A parent is aborted while the library makes its children: what is made by then is the program's, and nothing comes
 * later. */
static int aborted_parent(ncclUniqueId id, bool *late, ncclResult_t *result) {
  void (*write)(void) = (void (*)(void))found("fake_write"), (*drop)(void) = (void (*)(void))found("fake_drop");
  ncclResult_t async;
  ncclComm_t again, child;
  for (int made = 0; made < 2; made++) {
    *late = false;
    CHECK(ncclCommInitRank(&comms[0], 2, id, 0));
    *late = true;
    *result = ncclInProgress;
    WANT(ncclCommSplit(comms[0], 0, 0, &child, NULL) == ncclInProgress);
    *result = ncclSuccess;
    if (made)
      write();
    else
      drop();
    CHECK(ncclCommAbort(comms[0]));
    WANT((child != NULL) == made);
    if (made)
      CHECK(ncclCommDestroy(child));
    *late = false;
    do { /* until one is in its place, which has no child under way */
      CHECK(ncclCommInitRank(&again, 2, id, 0));
      CHECK(ncclCommGetAsyncError(again, &async));
      WANT(async == ncclSuccess);
      CHECK(ncclCommDestroy(again));
    } while (again != comms[0]);
  }
  return 0;
}

/* A group that fails ends what is made in it, and nothing else of its thread. */
static void failing_group(ncclComm_t comm, ncclResult_t *result) {
  for (int inside = 0; inside < 2; inside++) {
    CHECK(ncclGroupStart());
    for (int i = 0; i < inside; i++) {
      CHECK(ncclGroupStart());
      CHECK(ncclGroupEnd());
    }
    CHECK(ncclAllReduce(NULL, NULL, 1, 7, 0, comm, NULL));
    *result = ncclSystemError;
    WANT(ncclGroupEnd() == ncclSystemError);
    *result = ncclSuccess;
  }
}

int main(int argc, char **argv) {
  ncclUniqueId id = {"an id"};
  dlopen(getenv("SHUNT_NCCL_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  bool *late = found("fake_late");
  ncclResult_t *result = found("fake_result"), async;
  void (*write)(void) = (void (*)(void))found("fake_write");
  if (argc > 1 && strcmp(argv[1], "aborted parent") == 0)
    return aborted_parent(id, late, result);
  for (int rank = 0; rank < 2; rank++)
    CHECK(ncclCommInitRank(&comms[rank], 2, id, rank));
  CHECK(ncclCommSplit(comms[0], 0, 0, &children[0], NULL));
  *late = true;
  CHECK(ncclCommSplit(comms[1], NC_SPLIT_NOCOLOR, 0, &children[1], NULL));
  WANT(children[1] == NULL);
  write(); /* to no place of ours */
  WANT(children[1] == NULL);
  *late = false;
  CHECK(ncclCommDestroy(children[0]));

  /* A group, with another one inside. */
  *late = true;
  CHECK(ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    CHECK(ncclGroupStart());
    CHECK(ncclCommSplit(comms[i], 0, 0, &children[i], NULL));
    CHECK(ncclGroupEnd());
    WANT(children[i] == NULL);
  }
  write();
  CHECK(ncclGroupEnd());
  for (int i = 0; i < 2; i++) {
    CHECK(ncclAllReduce(NULL, NULL, 1, 7, 0, children[i], NULL));
    CHECK(ncclCommAbort(children[i])); /* writes records */
  }

  /* In the background. */
  for (int i = 0; i < 2; i++) {
    int other = 1 - i;
    if (i == 1) /* in a group, which ends before */
      CHECK(ncclGroupStart());
    *result = ncclInProgress;
    WANT(ncclCommShrink(comms[i], &other, 1, &children[i], NULL, 0) == ncclInProgress);
    WANT(i == 0 || ncclGroupEnd() == ncclInProgress);
    *result = ncclSuccess;
    CHECK(ncclCommGetAsyncError(comms[i], &async));
    WANT(async == ncclInProgress && children[i] == NULL);
    CHECK(ncclCommGetAsyncError(comms[other], &async));
    WANT(async == ncclSuccess);
    failing_group(comms[other], result);
    write();
    CHECK(ncclCommGetAsyncError(comms[i], &async));
    WANT(async == ncclSuccess && children[i] != NULL);
  }
  destroy();

  /* A group that fails has no children, and its communicators have nothing under way. */
  CHECK(ncclGroupStart());
  for (int i = 0; i < 2; i++)
    CHECK(ncclCommSplit(comms[i], 0, 0, &children[i], NULL));
  *result = ncclSystemError;
  WANT(ncclGroupEnd() == ncclSystemError);
  *result = ncclSuccess;
  for (int i = 0; i < 2; i++) {
    CHECK(ncclCommGetAsyncError(comms[i], &async));
    WANT(async == ncclSuccess && children[i] == NULL);
    CHECK(ncclCommDestroy(comms[i]));
  }
  puts("ok");
  return 0;
}
