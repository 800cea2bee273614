/*
 * block_limit.c: two ranks. Calls whose peer comes late are left pending, and are
 * then resumed or given up; joining is given up too.
 */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "check.h"

static shunt_comm comm, side; /* side: to tell the other rank when to come */
static int32_t rank;

/* Rank 1 waits here until rank 0 has come. */
static void meet(void) {
  int8_t token = 1;
  if (rank == 0)
    OK(shunt_send(side, &token, 1, SHUNT_DTYPE_INT8, 1, NULL));
  else
    OK(shunt_recv(side, &token, 1, SHUNT_DTYPE_INT8, 0, NULL));
}

static shunt_status sum(float *x) { return shunt_all_reduce(comm, x, x, 1, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL); }

static shunt_status exchange(int32_t *theirs) {
  int32_t mine = 7 + rank;
  OK(shunt_group_start(comm));
  OK(shunt_send(comm, &mine, 1, SHUNT_DTYPE_INT32, 1 - rank, NULL));
  OK(shunt_recv(comm, theirs, 1, SHUNT_DTYPE_INT32, 1 - rank, NULL));
  return shunt_group_end(comm);
}

/* Left pending twice at least, rank 1 is let go, and the call ends well. */
static void resume(shunt_status status) {
  if (rank == 1) {
    OK(status);
    return;
  }
  CHECK(status == SHUNT_PENDING);
  CHECK(shunt_continue(side) == SHUNT_INVALID_ARGUMENT);
  CHECK(shunt_continue(comm) == SHUNT_PENDING);
  meet();
  while ((status = shunt_continue(comm)) == SHUNT_PENDING) {
  }
  OK(status);
  CHECK(shunt_continue(comm) == SHUNT_INVALID_ARGUMENT);
}

static int32_t interrupted;
static void interrupt(int number) { __atomic_store_n(&interrupted, number, __ATOMIC_RELAXED); }

static void joining_is_given_up(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm never;
  options.rank = 1;
  options.world = 2;
  options.id = "tcp://127.0.0.1:9";
  options.cancel = &interrupted;
  CHECK(signal(SIGALRM, interrupt) != SIG_ERR);
  alarm(1);
  CHECK(shunt_comm_init(&options, &never) == SHUNT_ABORTED);
  CHECK(interrupted == SIGALRM);
  CHECK(never == NULL);
  CHECK(strstr(shunt_last_error(NULL), "rank 1 was told to stop joining") != NULL);
  CHECK(strstr(shunt_last_error(NULL), "its cancel word is set") != NULL);
}

/* Rank 0 gives up a split, a subset and an exchange that rank 1 does not come to. Rank 1, which comes late, learns it,
 * and the next call of each is as good as ever. */
static void dividing_is_given_up(void) {
  static const int32_t both[] = {0, 1};
  int32_t all[2];
  for (int call = 0; call < 3; call++) {
    interrupted = 0;
    OK(shunt_set_cancel(comm, &interrupted));
    for (int again = 0; again < 2; again++) {
      shunt_comm part = NULL;
      if (rank == 0 && again == 0)
        alarm(1);
      else if (again == 0)
        meet();
      shunt_status status = call == 0   ? shunt_split(comm, 0, 0, &part)
                            : call == 1 ? shunt_subset(comm, both, 2, &part)
                                        : shunt_exchange(comm, &rank, sizeof rank, all);
      if (again == 0) {
        CHECK(status == SHUNT_ABORTED);
        CHECK(strstr(shunt_last_error(comm), "rank 0 gave up waiting") != NULL);
        CHECK(part == NULL);
        if (rank == 0)
          meet();
        OK(shunt_set_cancel(comm, NULL));
        continue;
      }
      OK(status);
      if (part != NULL)
        OK(shunt_close(part));
    }
  }
}

static void options_of_before_are_taken(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm alone;
  options.struct_size = offsetof(shunt_options, cancel);
  options.world = 1;
  options.cancel = (const int32_t *)8; /* lies behind the struct */
  OK(shunt_comm_init(&options, &alone));
  OK(shunt_close(alone));
}

static void *close_it(void *given) {
  OK(shunt_close(given));
  return NULL;
}

/* Another thread closes the communicator while a call is pending, which then still
 * says how it ended. */
static void closed_meanwhile(void) {
  shunt_comm part;
  pthread_t other;
  float x = 1;
  OK(shunt_split(side, 0, 0, &part));
  if (rank == 1) {
    meet();
    OK(shunt_abort(part, "nobody comes"));
    OK(shunt_close(part));
    return;
  }
  OK(shunt_set_block_limit(part, 20));
  CHECK(shunt_all_reduce(part, &x, &x, 1, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL) == SHUNT_PENDING);
  CHECK(pthread_create(&other, NULL, close_it, part) == 0);
  meet();
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(shunt_continue(part) == SHUNT_ABORTED);
  CHECK(strstr(shunt_last_error(NULL), "all_reduce on rank 0: rank 1 aborted: nobody comes") != NULL);
  CHECK(shunt_continue(part) == SHUNT_INVALID_ARGUMENT);
}

int main(void) {
  int32_t theirs = 0;
  float x = 1;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_split(comm, 0, 0, &side));
  OK(shunt_cancel(comm, "nothing is pending"));
  if (rank == 0) {
    OK(shunt_set_block_limit(comm, 20));
    joining_is_given_up();
    options_of_before_are_taken();
  }
  dividing_is_given_up();

  /* the first call, which asks the ranks, and a later one, which runs */
  for (int i = 0; i < 2; i++) {
    x = 1;
    if (rank == 1)
      meet();
    resume(sum(&x));
    CHECK(x == 2);
  }
  for (int i = 0; i < 2; i++) {
    if (rank == 1)
      meet();
    resume(exchange(&theirs));
    CHECK(theirs == 8 - rank);
  }

  /* another call on the communicator, which waits for the first one, as of a
   * signal handler: the stack is worked off from its top */
  float y = 10;
  x = 1;
  if (rank == 0) {
    CHECK(sum(&x) == SHUNT_PENDING);
    CHECK(sum(&y) == SHUNT_PENDING);
    meet();
    shunt_status status;
    while ((status = shunt_continue(comm)) == SHUNT_PENDING) {
    }
    OK(status);
    CHECK(y == 20);
    while ((status = shunt_continue(comm)) == SHUNT_PENDING) {
    }
    OK(status);
  } else {
    meet();
    OK(sum(&x));
    OK(sum(&y));
  }
  CHECK(x == 2);

  if (rank == 0) {
    CHECK(sum(&x) == SHUNT_PENDING);
    CHECK(shunt_cancel(comm, "interrupted") == SHUNT_ABORTED);
    CHECK(strstr(shunt_last_error(NULL), "rank 0 aborted: interrupted") != NULL);
    meet();
  } else {
    /* rank 0 may have sent its part before it gave up; of the next sum it sends
     * nothing */
    meet();
    shunt_status status = sum(&x);
    if (status == SHUNT_OK)
      status = sum(&x);
    CHECK(status == SHUNT_ABORTED);
    CHECK(strstr(shunt_last_error(NULL), "rank 0 aborted: interrupted") != NULL);
  }
  CHECK(sum(&x) == SHUNT_ABORTED);
  OK(shunt_close(comm));
  closed_meanwhile();
  OK(shunt_close(side));
  return 0;
}
