/*
 * plugin_death.c: the transport is a plugin in a process of its own, which dies.
 * The error is returned once: by the call that meets it, or by shunt_get_async_error,
 * and then not by shunt_close again; by shunt_close, if no call has returned it before.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include "check.h"

/* Kills the children of all threads of this process: its plugins. */
static void kill_plugins(void) {
  int killed = 0;
  struct dirent *thread;
  DIR *threads = opendir("/proc/self/task");
  CHECK(threads != NULL);
  while ((thread = readdir(threads)) != NULL) {
    char path[300];
    int child;
    FILE *children;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", thread->d_name);
    children = thread->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (children == NULL)
      continue; /* a thread that has ended */
    while (fscanf(children, "%d", &child) == 1)
      killed += kill(child, SIGKILL) == 0;
    fclose(children);
  }
  closedir(threads);
  CHECK(killed == 1);
}

int main(int argc, char **argv) {
  const char *told = argc > 1 ? argv[1] : "";
  shunt_comm comm;
  shunt_status failed = SHUNT_OK;
  OK(shunt_comm_init_env(&comm));
  OK(shunt_barrier(comm, NULL));
  kill_plugins();
  if (strcmp(told, "by a call") == 0) {
    do
      failed = shunt_barrier(comm, NULL);
    while (failed == SHUNT_OK);
  } else if (strcmp(told, "by asking") == 0) {
    do
      OK(shunt_get_async_error(comm, &failed));
    while (failed == SHUNT_OK);
  } else {
    CHECK(shunt_close(comm) == SHUNT_PLUGIN_DIED);
    CHECK(strstr(shunt_last_error(NULL), "signal 9") != NULL);
    return 0;
  }
  CHECK(failed == SHUNT_PLUGIN_DIED);
  CHECK(strstr(shunt_last_error(comm), "signal 9") != NULL);
  OK(shunt_close(comm));
  return 0;
}
