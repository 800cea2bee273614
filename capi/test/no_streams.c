/*
 * no_streams.c LOG: ranks that are started with their standard streams closed, as some
 * daemons and schedulers do, and that take a log as their streams once the library is
 * loaded. What the library has open may not be among those.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

enum { streams = 3 };

int main(int argc, char **argv) {
  if (argc == 2) {
    for (int fd = 0; fd < streams; fd++)
      close(fd);
    execl("/proc/self/exe", argv[0], argv[1], "again", NULL);
    return 1;
  }
  int log = open(argv[1], O_RDWR | O_CREAT | O_APPEND, 0600);
  for (int fd = 0; fd < streams; fd++) {
    struct stat is, null;
    if (fstat(fd, &is) != 0 || stat("/dev/null", &null) != 0 || is.st_rdev != null.st_rdev)
      return 2; /* it is closed, or the library's own */
  }
  for (int call = 0; call < 2; call++) {
    int64_t one = 1, sum = 0;
    shunt_comm comm;
    OK(shunt_comm_init(NULL, &comm));
    for (int fd = 0; fd < streams; fd++)
      CHECK(dup2(log, fd) == fd);
    for (int i = 0; i < 100; i++)
      OK(shunt_all_reduce(comm, &one, &sum, 1, SHUNT_DTYPE_INT64, SHUNT_OP_SUM, NULL));
    CHECK(sum == 2);
    OK(shunt_close(comm));
  }
  return 0;
}
