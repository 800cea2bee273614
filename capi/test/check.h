/* check.h: what the C test programs share. A failed check prints where and
 * what, with Shunt's message, and ends the program with status 1. */
#ifndef SHUNT_TEST_CHECK_H
#define SHUNT_TEST_CHECK_H

#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                    \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, shunt_last_error(NULL)); \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)

#define OK(call)                                                                                              \
  do {                                                                                                        \
    shunt_status check_status = (call);                                                                       \
    if (check_status != SHUNT_OK) {                                                                           \
      fprintf(stderr, "%s:%d: %s returned %s: %s\n", __FILE__, __LINE__, #call, shunt_status_string(check_status), \
              shunt_last_error(NULL));                                                                        \
      exit(1);                                                                                                \
    }                                                                                                         \
  } while (0)

#endif
