// interface.cc: shunt.h from C++ (C++98 on), with a communicator as a C++
// object that closes itself, and two threads with a communicator each.
#include <shunt.h>

#include <pthread.h>
#include <cstdio>
#include <cstring>

namespace {

class Communicator {
 public:
  Communicator() : comm_(NULL) {}
  ~Communicator() {
    if (comm_ != NULL) shunt_close(comm_);
  }
  shunt_status init(const shunt_options &options) { return shunt_comm_init(&options, &comm_); }
  shunt_status split_from(const Communicator &whole) { return shunt_split(whole.comm_, 0, 0, &comm_); }
  shunt_comm get() const { return comm_; }

 private:
  Communicator(const Communicator &);
  Communicator &operator=(const Communicator &);
  shunt_comm comm_;
};

int fail(const char *what) {
  std::fprintf(stderr, "%s: %s\n", what, shunt_last_error(NULL));
  return 1;
}

struct Work {
  shunt_comm comm;
  const char *error;
};

// Each thread makes its own mistakes and sees only those.
void *work(void *argument) {
  Work *w = static_cast<Work *>(argument);
  for (int i = 0; i < 2000; i++) {
    double in = i, out = -1;
    if (shunt_all_reduce(w->comm, &in, &out, 1, SHUNT_DTYPE_FLOAT64, SHUNT_OP_SUM, NULL) != SHUNT_OK || out != in)
      w->error = "all_reduce on a thread";
    int32_t root = static_cast<int32_t>(reinterpret_cast<uintptr_t>(w) & 0xffff) + 2;
    char want[32];
    std::snprintf(want, sizeof want, "root %d ", root);
    if (shunt_broadcast(w->comm, &in, &out, 1, SHUNT_DTYPE_FLOAT64, root, NULL) != SHUNT_INVALID_ARGUMENT ||
        std::strstr(shunt_last_error(NULL), want) == NULL || std::strstr(shunt_last_error(w->comm), want) == NULL)
      w->error = "the message of this thread's own mistake";
  }
  return NULL;
}

}  // namespace

int main() {
  Communicator whole, parts[2];
  shunt_options options = SHUNT_OPTIONS_INIT;
  options.world = 1;
  if (whole.init(options) != SHUNT_OK) return fail("shunt_comm_init");
  Work works[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    if (parts[i].split_from(whole) != SHUNT_OK) return fail("shunt_split");
    works[i].comm = parts[i].get();
    works[i].error = NULL;
    if (pthread_create(&threads[i], NULL, work, &works[i]) != 0) return fail("pthread_create");
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    if (works[i].error != NULL) return fail(works[i].error);
  }
  return 0;
}
