/*
 * proxy.h: the thread that runs the engine steps of plans on a GPU. Kernels post
 * commands to a ring (kernels/command.h) as their streams come to them; the proxy begins
 * them in the ring's order, polls all that it has begun, and says which are done.
 */
#ifndef SHUNT_EXECUTOR_PROXY_H
#define SHUNT_EXECUTOR_PROXY_H

#include "engine.h"
#include "kernels/command.h"

/* Why the first command failed; written once. */
typedef struct sx_proxy_failure {
  uint32_t native; /* 1: native code; 0: a command of a ring */
  int32_t status, rank;
  uint64_t base; /* of whose plan it was */
  char message[SHUNT_RING_TEXT];
} sx_proxy_failure;

typedef struct sx_proxy sx_proxy;

/* A proxy of a ring and a watch page, which stay until it is freed; null without memory or
 * thread. grace is the time in nanoseconds that a request gets to stop. */
sx_proxy *sx_proxy_new(uintptr_t slots, uintptr_t watch, int32_t world, int64_t grace);
/* Ends the thread: 0, or -1 if native code has not returned; then the proxy and its memory
 * stay. */
int sx_proxy_free(sx_proxy *proxy);
/* Wakes the proxy: work that posts commands was put into a stream. */
void sx_proxy_wake(sx_proxy *proxy);
/* The first failure, or null. */
const sx_proxy_failure *sx_proxy_failed(sx_proxy *proxy);
/* Returns whether commands are in progress. */
int sx_proxy_busy(sx_proxy *proxy);
/* 1 + the base of a plan whose request was asked to stop and has not ended in time, or 0. */
uint64_t sx_proxy_stuck(sx_proxy *proxy);

#endif
