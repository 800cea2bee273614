/* no_driver.c: a communicator of GPU memory where the CUDA driver is missing. */
#include "check.h"

int main(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  CHECK(options.device == SHUNT_DEVICE_AUTO);
  options.memory = SHUNT_MEMORY_CUDA;
  CHECK(shunt_comm_init(&options, &comm) == SHUNT_UNSUPPORTED);
  CHECK(comm == NULL);
  CHECK(strstr(shunt_last_error(NULL), "no CUDA driver") != NULL);
  /* Host memory needs none, and has nothing to wait for. */
  OK(shunt_comm_init_env(&comm));
  OK(shunt_synchronize(comm, NULL));
  OK(shunt_register(comm, &options, sizeof options));
  OK(shunt_deregister(comm, &options));
  OK(shunt_close(comm));
  CHECK(shunt_synchronize(comm, NULL) == SHUNT_INVALID_ARGUMENT);
  return 0;
}
