// fiber.cc: see fiber.h. On x86-64 by hand, because swapcontext asks the kernel
// for the signal mask each time.
#include "fiber.h"

#include <cstdlib>
#include <sys/mman.h>
#include <vector>

namespace emulate {

// Stacks lie side by side: a guard for each would take most of a short program's time.
// Instead a fiber that leaves more than half of its stack in use ends the program.
static constexpr size_t kStackBytes = 64 << 10, kAtOnce = 128;
static std::vector<char *> stacks;  // that nobody uses

static char *take_stack() {
  if (stacks.empty()) {
    void *p = mmap(nullptr, kAtOnce * kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) abort();
    for (size_t i = kAtOnce; i-- > 0;) stacks.push_back(static_cast<char *>(p) + i * kStackBytes);
  }
  char *s = stacks.back();
  stacks.pop_back();
  return s;
}

bool is_deep(const Fiber &f) {
  const char here = 0;
  return &here < f.stack + kStackBytes / 2;
}

void release_stack(Fiber &f) {
  if (f.stack) stacks.push_back(f.stack);
  f.stack = nullptr;
}

#ifdef __x86_64__

asm(R"(
  .text
  .globl shunt_emulate_switch
  .type shunt_emulate_switch, @function
shunt_emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size shunt_emulate_switch, .-shunt_emulate_switch
)");
extern "C" void shunt_emulate_switch(void **from, void **to);

void make_fiber(Fiber &f, void (*body)()) {
  f.stack = take_stack();
  void **top = reinterpret_cast<void **>(f.stack + kStackBytes) - 1;
  *top = nullptr;                              // what body would return to; its stack is aligned as after a call
  *--top = reinterpret_cast<void *>(body);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f.top = top;
}
void switch_fiber(Fiber &from, Fiber &to) { shunt_emulate_switch(&from.top, &to.top); }

#else

void make_fiber(Fiber &f, void (*body)()) {
  f.stack = take_stack();
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack;
  f.context.uc_stack.ss_size = kStackBytes;
  f.context.uc_link = nullptr;
  makecontext(&f.context, body, 0);
}
void switch_fiber(Fiber &from, Fiber &to) { swapcontext(&from.context, &to.context); }

#endif

}  // namespace emulate
