/*
 * late.c: a libshunt.so for abort.c, which stops where a communicator has been made and the NCCL-compatible library
 * does not have it yet. All else is the library's behind it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "shunt.h"

void made(int32_t rank); /* abort.c */

static void stop(shunt_status status, shunt_comm *comm) {
  int32_t rank = -1;
  if (status == SHUNT_OK && *comm != NULL && shunt_rank(*comm, &rank) == SHUNT_OK)
    made(rank);
}

__attribute__((visibility("default"))) shunt_status shunt_comm_init(const shunt_options *options, shunt_comm *comm) {
  __typeof__(shunt_comm_init) *next = (__typeof__(shunt_comm_init) *)dlsym(RTLD_NEXT, "shunt_comm_init");
  shunt_status status = next(options, comm);
  stop(status, comm);
  return status;
}

__attribute__((visibility("default"))) shunt_status shunt_split(shunt_comm parent, int32_t color, int32_t key,
                                                                shunt_comm *comm) {
  __typeof__(shunt_split) *next = (__typeof__(shunt_split) *)dlsym(RTLD_NEXT, "shunt_split");
  shunt_status status = next(parent, color, key, comm);
  stop(status, comm);
  return status;
}
