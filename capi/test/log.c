/*
 * log.c: the program's function for log lines, in a world of one.
 */
#include <pthread.h>
#include <string.h>

#include "check.h"

struct seen {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int lines[4], made, nested, hold;
  char last[512];
};

static void see(void *context, shunt_log_level level, const char *text) {
  struct seen *s = context;
  pthread_mutex_lock(&s->lock);
  s->lines[level]++;
  s->made += strstr(text, "communicator made label=\"one of many\" communicator=world rank=0") == text;
  s->nested += shunt_set_log(NULL, NULL, SHUNT_LOG_DEBUG) == SHUNT_INVALID_ARGUMENT;
  strncpy(s->last, text, sizeof s->last - 1);
  pthread_cond_broadcast(&s->changed);
  while (s->hold)
    pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

static void make(void) {
  shunt_options options = SHUNT_OPTIONS_INIT;
  shunt_comm comm;
  char id[SHUNT_UNIQUE_ID_BYTES];
  OK(shunt_get_unique_id(id, sizeof id));
  options.id = id;
  options.world = 1;
  options.label = "one of many";
  OK(shunt_comm_init(&options, &comm));
  OK(shunt_close(comm));
}

static void *release(void *context) {
  struct seen *s = context;
  pthread_mutex_lock(&s->lock);
  while (s->made == 0 && s->lines[SHUNT_LOG_INFO] == 0)
    pthread_cond_wait(&s->changed, &s->lock);
  s->hold = 0;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

int main(void) {
  static struct seen all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
                     errors = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
  OK(shunt_set_log(see, &all, SHUNT_LOG_DEBUG));
  make();
  /* Another function, at another level: the first has had everything when this returns, and gets nothing any more. */
  OK(shunt_set_log(see, &errors, SHUNT_LOG_ERROR));
  int before = all.lines[SHUNT_LOG_INFO];
  CHECK(all.made == 1 && before > 1 && all.nested == all.lines[0] + all.lines[1] + all.lines[2] + all.lines[3]);
  CHECK(strchr(all.last, '\n') == NULL && strstr(all.last, "level=") == NULL && strstr(all.last, "time=") == NULL);
  make();
  CHECK(all.lines[SHUNT_LOG_INFO] == before && errors.made == 0);
  /* A function that waits holds up no call, and is waited for when it is replaced. */
  pthread_t thread;
  all.made = all.lines[SHUNT_LOG_INFO] = 0;
  all.hold = 1;
  OK(shunt_set_log(see, &all, SHUNT_LOG_INFO));
  make();
  CHECK(pthread_create(&thread, NULL, release, &all) == 0);
  OK(shunt_set_log(NULL, NULL, SHUNT_LOG_DEBUG));
  pthread_join(thread, NULL);
  CHECK(all.made == 1 && all.lines[SHUNT_LOG_INFO] == before);
  make(); /* to standard error */
  return 0;
}
