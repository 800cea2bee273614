/*
 * failure.c: an error that nobody has heard is that of closing; and while the main
 * thread is inside a call that would never return, a second thread reads the
 * communicator's state and its records all the time, and a third aborts: both reads
 * succeed throughout, and show what happened.
 */
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"

static shunt_comm comm, side; /* side: for ranks to meet, so that comm has one operation */
static int32_t rank, world;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int inside;

/* More than the size of a record changes while nothing runs. */
#define SLACK 64

/* The whole record, for the caller to free. */
static char *record(void) {
  size_t bytes = 0, capacity = 0;
  char *json = NULL;
  for (;;) {
    shunt_status status = shunt_records(comm, json, capacity, &bytes);
    CHECK(bytes > 1);
    if (status == SHUNT_OK && capacity > 0) {
      CHECK(strlen(json) + 1 == bytes && json[0] == '{' && json[bytes - 2] == '}');
      return json;
    }
    if (capacity > 0) { /* it has grown meanwhile */
      CHECK(status == SHUNT_INVALID_ARGUMENT && bytes > capacity && json[0] == 0);
    }
    free(json);
    capacity = bytes + SLACK;
    json = malloc(capacity);
    CHECK(json != NULL);
  }
}

static void *ask(void *unused) {
  shunt_status failed = SHUNT_OK;
  while (failed == SHUNT_OK) {
    char *json;
    OK(shunt_get_async_error(comm, &failed));
    if (failed != SHUNT_OK) {
      CHECK(failed == SHUNT_ABORTED);
      CHECK(strstr(shunt_last_error(NULL), "communicator world on rank ") != NULL);
      CHECK(strstr(shunt_last_error(NULL), "rank 0 aborted: enough waiting") != NULL);
      CHECK(strstr(shunt_last_error(comm), "enough waiting") != NULL);
    }
    json = record();
    if (strstr(json, "\"collective\":\"recv\"") != NULL) {
      if (failed == SHUNT_OK && strstr(json, "\"state\":\"running\"") != NULL) {
        pthread_mutex_lock(&lock);
        inside = 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
      }
    }
    if (failed != SHUNT_OK)
      CHECK(strstr(json, "\"failure\":\"rank 0 aborted: enough waiting\"") != NULL);
    free(json);
  }
  return unused;
}

static void *end_it(void *unused) {
  pthread_mutex_lock(&lock);
  while (!inside)
    pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  OK(shunt_abort(comm, "enough waiting"));
  return unused;
}

/* That an operation has ended does not say how: its error is that of shunt_close. */
static void unheard(int by_notice) {
  shunt_comm part;
  OK(shunt_split(comm, 0, rank, &part));
  if (rank == 0) {
    float number;
    shunt_operation operation = SHUNT_OPERATION_INIT;
    shunt_request request;
    operation.collective = SHUNT_COLL_RECV;
    operation.dtype = SHUNT_DTYPE_FLOAT32;
    operation.recv = &number;
    operation.count = 1;
    operation.root = 1; /* which never sends */
    OK(shunt_set_timeout(part, 300));
    OK(shunt_start(part, &operation, &request));
    if (by_notice) {
      int notice = eventfd(0, EFD_CLOEXEC);
      uint64_t ended = 0;
      OK(shunt_request_notify(request, notice));
      CHECK(read(notice, &ended, sizeof ended) == sizeof ended && ended == 1 && close(notice) == 0);
    } else {
      for (int32_t done = 0; !done;)
        OK(shunt_request_test(request, 1000, &done));
    }
    CHECK(shunt_close(part) == SHUNT_TIMEOUT);
    CHECK(strstr(shunt_last_error(NULL), "recv") != NULL);
  }
  OK(shunt_barrier(side, NULL)); /* the others stay until rank 0 has closed */
  if (rank != 0)
    OK(shunt_close(part));
}

int main(void) {
  float numbers[4] = {1, 2, 3, 4};
  pthread_t asking, ending;
  shunt_status now = SHUNT_INTERNAL;
  char *json;
  size_t bytes = 0, needed = 0, room;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_rank(comm, &rank));
  OK(shunt_world(comm, &world));
  OK(shunt_split(comm, 0, rank, &side));
  unheard(0);
  unheard(1);
  OK(shunt_get_async_error(comm, &now));
  CHECK(now == SHUNT_OK);
  OK(shunt_all_reduce(comm, numbers, numbers, 4, SHUNT_DTYPE_FLOAT32, SHUNT_OP_MAX, NULL));

  /* One operation, worded. Its times are measured anew by each call, so the size
   * may change by a few digits though nothing runs. */
  OK(shunt_records(comm, NULL, 0, &bytes));
  CHECK(bytes > SLACK);
  room = bytes + 2 * SLACK;
  json = malloc(room);
  CHECK(json != NULL);
  memset(json, 'x', room);
  OK(shunt_records(comm, json, bytes + SLACK, &needed));
  CHECK(strlen(json) + 1 == needed && json[needed] == 'x'); /* and not a byte more */
  CHECK(strstr(json, "{\"number\":1,\"collective\":\"all_reduce\",\"dtype\":\"float32\",\"op\":\"max\",\"count\":4,"
                     "\"root\":0,") != NULL);
  CHECK(strstr(json, "\"state\":\"ended\"}]}") != NULL);
  CHECK(strstr(json, "failure") == NULL);
  memset(json, 'x', room);
  OK(shunt_records(comm, json, SIZE_MAX, NULL)); /* only what is needed is touched */
  CHECK(json[strlen(json) - 1] == '}' && json[room - 1] == 'x');

  /* Whatever the capacity: all or nothing, and never a byte beyond it. */
  for (size_t capacity = 1; capacity < bytes + SLACK; capacity++) {
    memset(json, 'x', room);
    shunt_status status = shunt_records(comm, json, capacity, &needed);
    CHECK((status == SHUNT_OK) == (needed <= capacity) && (status == SHUNT_OK || status == SHUNT_INVALID_ARGUMENT));
    CHECK(status == SHUNT_OK ? strlen(json) + 1 == needed : json[0] == 0 && json[1] == 'x');
    CHECK(json[capacity] == 'x');
  }
  CHECK(shunt_records(comm, json, 64, NULL) == SHUNT_INVALID_ARGUMENT);
  CHECK(strstr(shunt_last_error(NULL), "capacity is 64") != NULL);
  free(json);

  OK(shunt_barrier(side, NULL)); /* rank 0 may abort */
  CHECK(pthread_create(&asking, NULL, ask, NULL) == 0);
  if (rank == 0)
    CHECK(pthread_create(&ending, NULL, end_it, NULL) == 0);
  CHECK(shunt_recv(comm, numbers, 4, SHUNT_DTYPE_FLOAT32, (rank + 1) % world, NULL) == SHUNT_ABORTED);
  pthread_join(asking, NULL);
  if (rank == 0)
    pthread_join(ending, NULL);

  /* afterwards too, as often as one likes; and the failed call is reported */
  for (int i = 0; i < 3; i++) {
    OK(shunt_get_async_error(comm, &now));
    CHECK(now == SHUNT_ABORTED);
  }
  if (rank == 0) { /* others may have heard of it before they called */
    json = record();
    CHECK(strstr(json, "\"collective\":\"recv\",\"dtype\":\"float32\",\"count\":4") != NULL);
    CHECK(strstr(json, "\"state\":\"failed\"}]}") != NULL);
    free(json);
  }
  OK(shunt_close(side));
  OK(shunt_close(comm));
  CHECK(shunt_get_async_error(comm, &now) == SHUNT_INVALID_ARGUMENT && now == SHUNT_OK);

  /* there is no message of a closed communicator: it is the thread's, which stays */
  char said[1024];
  CHECK(shunt_get_unique_id(NULL, 0) == SHUNT_INVALID_ARGUMENT);
  snprintf(said, sizeof said, "%s", shunt_last_error(NULL));
  CHECK(strstr(shunt_last_error(comm), said) != NULL && strstr(shunt_last_error(NULL), said) != NULL);
  return 0;
}
