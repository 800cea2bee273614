/*
 * timing.h: for the benchmarks in C: the clock, the times of samples, and the end of a program whose call failed.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <shunt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Returns nanoseconds since some point in the past. */
static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Returns zeros for so many times, which the caller frees. Ends the program when there is no memory. */
static inline double *new_times(long samples) {
  double *times = calloc((size_t)samples, sizeof *times);
  if (times == NULL) {
    fprintf(stderr, "no memory for %ld times\n", samples);
    exit(1);
  }
  return times;
}

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts times, the shortest first: the median of samples is at samples / 2 then. */
static inline void sort_times(double *times, long samples) {
  qsort(times, (size_t)samples, sizeof *times, ascending);
}

/* Unless status is OK, ends the program with the last error of comm, or of this thread where comm is NULL. */
static inline void check(shunt_comm comm, shunt_status status) {
  if (status == SHUNT_OK)
    return;
  fprintf(stderr, "%s\n", shunt_last_error(comm));
  exit(1);
}

#endif
