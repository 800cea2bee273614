// fiber.h: switching between stacks of one OS thread.
#pragma once

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emulate {

struct Fiber {
  char *stack = nullptr;
#ifdef __x86_64__
  void *top = nullptr;
#else
  ucontext_t context;
#endif
};

// A fiber that begins with body, which never returns.
void make_fiber(Fiber &f, void (*body)());
void release_stack(Fiber &f);
// Whether more than half of the stack of the fiber that runs is in use.
bool is_deep(const Fiber &f);
void switch_fiber(Fiber &from, Fiber &to);

}  // namespace emulate
