/*
 * forked.c: after fork() every function returns SHUNT_FORKED at once, in a
 * child with and without a communicator; the parent continues unharmed.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void in_child(shunt_comm comm, shunt_window window) {
  float a = 1, b = 0;
  int64_t one[1] = {1};
  int32_t n;
  char text[600];
  void *base;
  size_t bytes;
  shunt_comm other;
  shunt_window made;
  shunt_request request;
  shunt_operation operation = SHUNT_OPERATION_INIT;
  const int32_t f32 = SHUNT_DTYPE_FLOAT32, sum = SHUNT_OP_SUM;
  const shunt_status results[] = {
      shunt_get_unique_id(text, sizeof text), shunt_comm_init(NULL, &other), shunt_comm_init_env(&other),
      shunt_rank(comm, &n), shunt_world(comm, &n), shunt_split(comm, 0, 0, &other), shunt_shrink(comm, &other),
      shunt_abort(comm, "no"), shunt_close(comm), shunt_explain(comm, 0, f32, sum, 1, text, sizeof text, NULL),
      shunt_all_reduce(comm, &a, &b, 1, f32, sum, NULL), shunt_reduce(comm, &a, &b, 1, f32, sum, 0, NULL),
      shunt_all_reduce(comm, &a, &b, 1, f32, SHUNT_OP_PREMUL_SUM, NULL),
      shunt_broadcast(comm, &a, &b, 1, f32, 0, NULL), shunt_all_gather(comm, &a, &b, 1, f32, NULL),
      shunt_all_gather_v(comm, &a, &b, one, NULL, f32, NULL), shunt_reduce_scatter(comm, &a, &b, 1, f32, sum, NULL),
      shunt_reduce_scatter_v(comm, &a, &b, one, NULL, f32, sum, NULL), shunt_all_to_all(comm, &a, &b, 1, f32, NULL),
      shunt_all_to_all_v(comm, &a, one, NULL, &b, one, NULL, f32, NULL), shunt_gather(comm, &a, &b, 1, f32, 0, NULL),
      shunt_all_to_all_v_on_device(comm, &a, 1, one, NULL, &b, 1, one, NULL, f32, NULL),
      shunt_gather_v(comm, &a, 1, &b, one, NULL, f32, 0, NULL), shunt_scatter(comm, &a, &b, 1, f32, 0, NULL),
      shunt_scatter_v(comm, &a, one, NULL, &b, 1, f32, 0, NULL), shunt_send(comm, &a, 1, f32, 0, NULL),
      shunt_recv(comm, &b, 1, f32, 0, NULL), shunt_barrier(comm, NULL), shunt_run(comm, &operation),
      shunt_group_start(comm), shunt_group_end(comm), shunt_start(comm, &operation, &request),
      shunt_request_test(NULL, 0, &n), shunt_request_notify(NULL, 0), shunt_request_wait(NULL),
      shunt_group_cancel(comm),
      shunt_window_create(comm, 8, &made, &base), shunt_window_at(comm, &a, 8, &made, &base),
      shunt_peer_address(comm, &a, 0, &base), shunt_put(comm, window, &a, 1, f32, 0, 0, NULL),
      shunt_get(comm, window, &b, 1, f32, 0, 0, NULL),
      shunt_signal(comm, window, 0, NULL), shunt_wait(comm, window, 0, 1, NULL), shunt_window_free(window),
      shunt_get_async_error(comm, &n), shunt_records(comm, NULL, 0, &bytes),
      shunt_set_cancel(comm, NULL), shunt_set_timeout(comm, 1000),
  };
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i] != SHUNT_FORKED) {
      fprintf(stderr, "call %zu in a forked child returned %s\n", i, shunt_status_string(results[i]));
      _exit(1);
    }
  if (strstr(shunt_last_error(NULL), "forked") == NULL || strstr(shunt_last_error(comm), "spawn") == NULL)
    _exit(2);
  if (shunt_version(&n, NULL, NULL) != SHUNT_OK || n != SHUNT_API_MAJOR)
    _exit(3);
}

static void fork_once(shunt_comm comm, shunt_window window) {
  int status;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(20); /* a hang ends the child by a signal */
    in_child(comm, window);
    pid_t grandchild = fork();
    if (grandchild == 0) {
      in_child(comm, window);
      _exit(0);
    }
    if (waitpid(grandchild, &status, 0) != grandchild || status != 0)
      _exit(4);
    exit(0); /* exit handlers run too */
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) {
    fprintf(stderr, "forked child ended with status %#x\n", status);
    exit(1);
  }
}

int main(void) {
  shunt_comm comm;
  shunt_window window;
  void *base;
  float a = 3, b = 0;
  fork_once(NULL, NULL);
  OK(shunt_comm_init_env(&comm));
  OK(shunt_window_create(comm, 8, &window, &base));
  fork_once(comm, window);
  OK(shunt_all_reduce(comm, &a, &b, 1, SHUNT_DTYPE_FLOAT32, SHUNT_OP_SUM, NULL));
  CHECK(b == 3);
  OK(shunt_close(comm));
  return 0;
}
