/* What scripts/portable-cxx.sh puts before C++ sources, so that they need neither a libstdc++ newer than that of
 * GCC 8 nor glibc 2.29: the manylinux_2_28 of wheels. */
#include <bits/c++config.h>
/* glibc 2.30 brought pthread_cond_clockwait. Waits of a condition variable then go by the system's clock. */
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
/* glibc 2.32 brought this variable. 0: there may be other threads, which is always right.
 * Each object has it; weak, so that they can be linked together. */
extern "C" {
__attribute__((weak, visibility("hidden"))) char __libc_single_threaded = 0;
}
/* The same function under the version that it has always had. */
__asm__(".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
