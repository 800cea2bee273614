/*
 * interpret.c: the steps. A track runs here until it ends, must wait or fails.
 * Every address is resolved and checked when it is used, because registers
 * change; an address that passed is inside a region or the caller's memory.
 */
#include <limits.h>
#include <string.h>

#include "engine.h"
#include "reduce.h"

/* Pieces of long copies and reductions, between which abort is polled. */
#define PIECE (INT64_C(4) << 20)
/* Bytes up to which a step takes no time to speak of: peers may wait that long for earlier signals. */
#define BRIEF 4096

uint32_t sx_fail(sx_engine *e, const sx_track *t, uint32_t reason) {
  sx_failure *f = &e->failure;
  memset(f, 0, sizeof *f);
  f->reason = reason;
  f->rank = -1;
  f->launch = f->track = f->step = -1;
  if (t) {
    f->launch = (int32_t)t->launch->index;
    f->track = (int32_t)(t - t->launch->instance->tracks);
    f->step = (int32_t)(t->word ? t->step : t->at->number);
  }
  return reason;
}

static char *refuse(sx_engine *e, const sx_track *t, uint32_t reason, const sx_ref *ref, int64_t bytes,
                    int64_t length) {
  sx_fail(e, t, reason);
  e->failure.space = ref->space;
  e->failure.x = t->frame[ref->offset];
  e->failure.y = bytes;
  e->failure.z = length;
  if (ref->space == SHUNT_SPACE_REGION) {
    int64_t rank = t->frame[ref->rank];
    e->failure.region = t->frame[ref->region];
    e->failure.rank = rank >= 0 && rank < e->world ? (int32_t)rank : -1;
    if (reason == SX_NO_RANK) e->failure.x = rank;
  }
  return NULL;
}

/* The memory of a region, or null. */
static inline const sx_memory *region(sx_engine *e, const sx_track *t, const sx_ref *ref, int64_t rank) {
  uint64_t entry = (uint64_t)t->frame[ref->region];
  if (SX_UNLIKELY(entry >= (uint64_t)SX_CHUNK * SX_CHUNKS)) return NULL;
  entry += t->launch->program->base;
  if (SX_UNLIKELY(entry >= (uint64_t)SX_CHUNK * SX_CHUNKS)) return NULL;
  const sx_memory *chunk = atomic_load_explicit(&e->chunks[entry / SX_CHUNK], memory_order_acquire);
  if (SX_UNLIKELY(!chunk)) return NULL;
  return &chunk[entry % SX_CHUNK * (uint64_t)e->world + (uint64_t)rank];
}

static inline char *place_at(sx_engine *e, const sx_track *t, const sx_ref *ref, int64_t rank, int64_t bytes) {
  char *base;
  int64_t length;
  switch (ref->space) {
  case SHUNT_SPACE_SEND:
    base = t->launch->send;
    length = t->launch->send_bytes;
    break;
  case SHUNT_SPACE_RECV:
    base = t->launch->recv;
    length = t->launch->recv_bytes;
    break;
  default: {
    if (SX_UNLIKELY((uint64_t)rank >= (uint64_t)e->world)) return refuse(e, t, SX_NO_RANK, ref, bytes, 0);
    const sx_memory *m = region(e, t, ref, rank);
    if (SX_UNLIKELY(!m)) return refuse(e, t, SX_NO_REGION, ref, bytes, 0);
    length = atomic_load_explicit(&m->bytes, memory_order_acquire);
    base = m->base;
  }
  }
  int64_t offset = t->frame[ref->offset];
  /* bytes > 0 and length >= 0, so nothing here overflows */
  if (SX_UNLIKELY(offset < 0 || bytes > length || offset > length - bytes))
    return refuse(e, t, SX_BOUNDS, ref, bytes, length);
  if (SX_UNLIKELY(!base)) return refuse(e, t, SX_NULL, ref, bytes, length);
  return base + offset;
}

/* The address of bytes > 0 at a ref, or null after recording why not. */
static inline char *place(sx_engine *e, const sx_track *t, const sx_ref *ref, int64_t bytes) {
  return place_at(e, t, ref, ref->space == SHUNT_SPACE_REGION ? t->frame[ref->rank] : 0, bytes);
}

static inline _Atomic int64_t *aligned_at(sx_engine *e, const sx_track *t, const sx_ref *ref, int64_t rank,
                                          int64_t bytes) {
  char *at = place_at(e, t, ref, rank, bytes);
  if (SX_UNLIKELY((uintptr_t)at % 8)) {
    refuse(e, t, SX_MISALIGNED, ref, 8, 0);
    return NULL;
  }
  return (_Atomic int64_t *)at;
}

static inline _Atomic int64_t *word(sx_engine *e, const sx_track *t, const sx_ref *ref) {
  return aligned_at(e, t, ref, t->frame[ref->rank], 8);
}

/* A semaphore, with the word behind it where that is for marks. */
static inline _Atomic int64_t *semaphore_at(sx_engine *e, const sx_track *t, const sx_ref *ref, int64_t rank) {
  return aligned_at(e, t, ref, rank, e->mark ? 16 : 8);
}

static inline _Atomic int64_t *semaphore(sx_engine *e, const sx_track *t, const sx_ref *ref) {
  return semaphore_at(e, t, ref, t->frame[ref->rank]);
}

/* Remember to wake a rank; sx_ring does it at the next wait, at the end of the
 * run and before long work. So a signal costs a store, and however many
 * signals one fence. */
static inline int wake(sx_engine *e, const sx_track *t, int64_t rank) {
  if (SX_UNLIKELY((uint64_t)rank >= (uint64_t)e->world)) {
    sx_fail(e, t, SX_NO_RANK);
    e->failure.x = rank;
    return -1;
  }
  if (!e->ringing[rank]) {
    e->ringing[rank] = 1;
    e->ring[e->count_ring++] = (uint32_t)rank;
  }
  return 0;
}

/* Refuse what a semaphore stands for: a peer whose calls differ has raised it. */
static int disagree(sx_engine *e, const sx_track *t, int64_t rank) {
  sx_fail(e, t, SX_DISAGREE);
  e->failure.rank = (uint64_t)rank < (uint64_t)e->world ? (int32_t)rank : -1;
  return SX_TRACK_FAILED;
}

static inline int reached(const _Atomic int64_t *semaphore, int64_t value) {
  /* acquire: what its writer wrote before signalling is visible after this */
  return sx_reached(atomic_load_explicit(semaphore, memory_order_acquire), value);
}

static inline int block(sx_track *t, const sx_step *s, const _Atomic int64_t *semaphore, int64_t value, int64_t rank) {
  t->step = s->number;
  t->word = semaphore;
  t->value = value;
  t->rank = rank >= 0 && rank < SHUNT_MAX_WORLD ? (int32_t)rank : -1;
  return SX_TRACK_BLOCKED;
}

/* Look at abort and clock when the budget is used up. */
static inline uint32_t spend(sx_engine *e, const sx_track *t, int32_t work) {
  if (SX_LIKELY((e->budget -= work) > 0) && SX_LIKELY(!atomic_load_explicit(&e->abort, memory_order_relaxed)))
    return SX_FINE;
  e->budget = SX_BUDGET;
  return sx_look(e, t);
}

uint32_t sx_spend(sx_engine *e, const sx_track *t, int32_t work) { return spend(e, t, work); }

static double factor_of(const sx_track *t, const sx_ref *ref) {
  double factor;
  memcpy(&factor, &t->frame[ref->scale], sizeof factor);
  return factor;
}

/* 1 to 16 bytes without a call; everything is read before anything is written,
 * so the two may overlap. */
static inline void copy_few(char *dst, const char *src, int64_t n) {
  if (n >= 8) {
    uint64_t head, tail;
    memcpy(&head, src, 8);
    memcpy(&tail, src + n - 8, 8);
    memcpy(dst, &head, 8);
    memcpy(dst + n - 8, &tail, 8);
  } else if (n >= 4) {
    uint32_t head, tail;
    memcpy(&head, src, 4);
    memcpy(&tail, src + n - 4, 4);
    memcpy(dst, &head, 4);
    memcpy(dst + n - 4, &tail, 4);
  } else {
    char head = src[0], middle = src[n / 2], tail = src[n - 1];
    dst[0] = head;
    dst[n / 2] = middle;
    dst[n - 1] = tail;
  }
}

static int copy(sx_engine *e, sx_track *t, const sx_step *s, const sx_ref *refs) {
  int64_t n = t->frame[s->n];
  if (n <= 0) {
    if (n == 0) return 0;
    sx_fail(e, t, SX_LENGTH);
    e->failure.x = n;
    return -1;
  }
  char *dst = place(e, t, &refs[s->dst], n);
  if (SX_UNLIKELY(!dst)) return -1;
  const sx_ref *from = &refs[s->a];
  if (from->space == SHUNT_SPACE_PEER) {
    int failed = sx_peer_read(e, t, from, dst, n);
    if (SX_LIKELY(failed <= 0)) return failed;
    const sx_launch *l = t->launch;
    int receives = refs[s->dst].space == SHUNT_SPACE_RECV;
    refuse(e, t, SX_UNMAPPED, &refs[s->dst], n, receives ? l->recv_bytes : n);
    e->failure.x = (int64_t)(uintptr_t)(receives ? l->recv : dst);
    return -1;
  }
  const char *src = place(e, t, from, n);
  if (SX_UNLIKELY(!src)) return -1;
  const sx_program *p = t->launch->program;
  if (from->scale != SX_ABSENT) {
    if (n % p->element) {
      sx_fail(e, t, SX_PARTIAL);
      e->failure.x = n;
      e->failure.y = p->element;
      return -1;
    }
    for (int64_t done = 0; done < n; done += PIECE) {
      int64_t bytes = n - done < PIECE ? n - done : PIECE;
      sx_scale(p->dtype, dst + done, src + done, bytes / p->element, factor_of(t, from));
      if (spend(e, t, (int32_t)(bytes >> 12))) return -1;
    }
    return 0;
  }
  if (n <= 16) {
    copy_few(dst, src, n);
    return 0;
  }
  if (n <= BRIEF) {
    sx_copy(dst, src, n);
    return 0;
  }
  sx_ring(e); /* peers need not wait for this copy to see earlier signals */
  /* Overlapping memory moves in one piece; it is rare and must be right. */
  if (dst < src + n && src < dst + n) {
    if (dst != src) memmove(dst, src, (size_t)n);
    return spend(e, t, n >> 12 > INT_MAX ? INT_MAX : (int32_t)(n >> 12)) ? -1 : 0;
  }
  for (int64_t done = 0; done < n; done += PIECE) {
    int64_t bytes = n - done < PIECE ? n - done : PIECE;
    sx_copy(dst + done, src + done, bytes);
    if (spend(e, t, (int32_t)(bytes >> 12))) return -1;
  }
  return 0;
}

/* The address of a place in the caller's memory, which may be its end: 0 where
 * the memory is null, and -1 after recording why not. */
static inline int64_t address(sx_engine *e, const sx_track *t, const sx_ref *ref) {
  int receive = ref->space == SHUNT_SPACE_RECV;
  const char *base = receive ? t->launch->recv : t->launch->send;
  int64_t length = receive ? t->launch->recv_bytes : t->launch->send_bytes;
  int64_t offset = t->frame[ref->offset];
  if (SX_UNLIKELY(offset < 0 || offset > length)) {
    refuse(e, t, SX_BOUNDS, ref, 0, length);
    return -1;
  }
  return base ? (int64_t)((uintptr_t)base + (uintptr_t)offset) : 0;
}

static int reduce(sx_engine *e, sx_track *t, const sx_step *s, const sx_ref *refs) {
  const sx_program *p = t->launch->program;
  int64_t n = t->frame[s->n];
  if (n <= 0 || n > INT64_MAX / 8) {
    if (n == 0) return 0;
    sx_fail(e, t, SX_LENGTH);
    e->failure.x = n;
    return -1;
  }
  int64_t bytes = n * p->element;
  char *dst = place(e, t, &refs[s->dst], bytes);
  if (SX_UNLIKELY(!dst)) return -1;
  sx_source *sources = t->launch->instance->sources;
  for (uint32_t i = 0; i < s->b; i++) {
    const sx_ref *from = &refs[s->a + i];
    sources[i].at = place(e, t, from, bytes);
    if (SX_UNLIKELY(!sources[i].at)) return -1;
    sources[i].scaled = from->scale != SX_ABSENT;
    sources[i].factor = sources[i].scaled ? factor_of(t, from) : 1;
  }
  if (bytes > BRIEF) sx_ring(e);
  int64_t piece = PIECE / p->element / s->b;
  if (piece < 1024) piece = 1024;
  for (int64_t done = 0; done < n; done += piece) {
    int64_t count = n - done < piece ? n - done : piece;
    sx_reduce(p->dtype, p->op, (uint32_t)e->world, dst + done * p->element, sources, s->b, count);
    for (uint32_t i = 0; i < s->b; i++) sources[i].at += count * p->element;
    if (bytes > BRIEF && spend(e, t, 1 + (int32_t)((count * s->b) >> 10))) return -1;
  }
  return 0;
}

/* Narrow operands, the common case, divide in a third of the time. By zero is
 * zero; by -1 is a negation, which wraps where the processor would trap. */
static inline int64_t divide(int64_t a, int64_t b) {
  if (SX_LIKELY((((uint64_t)a | (uint64_t)b) >> 32) == 0)) return b ? (uint32_t)a / (uint32_t)b : 0;
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static inline int64_t modulo(int64_t a, int64_t b) {
  if (b > 0 && (b & (b - 1)) == 0 && a >= 0) return a & (b - 1);
  return b == 0 || b == -1 ? 0 : a % b;
}

#define R(x) frame[s->x]
#define U(x) ((uint64_t)frame[s->x])
#define FAIL() do { t->at = s; return SX_TRACK_FAILED; } while (0)

/* Inlined twice, so that runs without delays do not look for them at each step. */
static inline __attribute__((always_inline)) int interpret(sx_engine *e, sx_track *t, const int delayed) {
  const sx_step *s = t->at;
  int64_t *frame = t->frame;
  const sx_ref *refs = t->launch->program->refs;
  _Atomic int64_t *w;
  for (;; s++) {
    if (delayed && sx_delay(e, t, s)) FAIL();
    switch (s->code) {
    case SX_MOV: R(dst) = R(a); break;
    case SX_ADD: R(dst) = (int64_t)(U(a) + U(b)); break;
    case SX_SUB: R(dst) = (int64_t)(U(a) - U(b)); break;
    case SX_MUL: R(dst) = (int64_t)(U(a) * U(b)); break;
    case SX_DIV: R(dst) = divide(R(a), R(b)); break;
    case SX_MOD: R(dst) = modulo(R(a), R(b)); break;
    case SX_MIN: R(dst) = R(a) < R(b) ? R(a) : R(b); break;
    case SX_MAX: R(dst) = R(a) > R(b) ? R(a) : R(b); break;
    case SX_LT: R(dst) = R(a) < R(b); break;
    case SX_LE: R(dst) = R(a) <= R(b); break;
    case SX_EQ: R(dst) = R(a) == R(b); break;
    case SX_NE: R(dst) = R(a) != R(b); break;
    case SX_SELECT: R(dst) = R(a) ? R(b) : R(c); break;

    case SX_LOAD:
      t->at = s;
      if (!(w = word(e, t, &refs[s->a]))) FAIL();
      /* acquire: what the word's writer wrote before is visible after */
      R(dst) = atomic_load_explicit(w, memory_order_acquire);
      break;
    case SX_ADDRESS:
      t->at = s;
      if (SX_UNLIKELY((R(dst) = address(e, t, &refs[s->a])) == -1)) FAIL();
      break;
    case SX_STORE:
      t->at = s;
      if (!(w = word(e, t, &refs[s->dst]))) FAIL();
      /* relaxed: only this rank reads the word, whose tracks share one thread,
       * or a later signal releases it */
      atomic_store_explicit(w, R(a), memory_order_relaxed);
      break;
    case SX_COPY:
      t->at = s;
      if (copy(e, t, s, refs)) FAIL();
      break;
    case SX_REDUCE:
      t->at = s;
      if (reduce(e, t, s, refs)) FAIL();
      break;

    case SX_SIGNAL:
      t->at = s;
      if (!(w = semaphore(e, t, &refs[s->dst]))) FAIL();
      sx_leave_mark(e, w);
      /* release: every earlier write of this rank, copied data included, is
       * visible to a peer that acquires this value */
      atomic_store_explicit(w, R(a), memory_order_release);
      if (s->b == SX_ABSENT) e->ring_all = 1;
      else if (wake(e, t, R(b))) FAIL();
      break;
    case SX_WAIT:
      t->at = s;
      if (!(w = semaphore(e, t, &refs[s->a]))) FAIL();
      if (reached(w, R(b))) {
        if (sx_stray(e, w, s->c == SX_ABSENT ? -1 : R(c))) return disagree(e, t, s->c == SX_ABSENT ? -1 : R(c));
        break;
      }
      t->at = s + 1;
      return block(t, s, w, R(b), s->c == SX_ABSENT ? -1 : R(c));

    case SX_ARRIVE: {
      t->at = s;
      if (!(w = word(e, t, &refs[s->a]))) FAIL();
      /* relaxed: the counter is this rank's alone */
      int64_t value = (int64_t)((uint64_t)atomic_load_explicit(w, memory_order_relaxed) + 1);
      atomic_store_explicit(w, value, memory_order_relaxed);
      if (!(w = semaphore(e, t, &refs[s->dst]))) FAIL();
      sx_leave_mark(e, w);
      /* release: what this rank wrote before the barrier is visible after it */
      atomic_store_explicit(w, value, memory_order_release);
      e->ring_all = 1;
      R(b) = value;
      R(c) = 0;
      break;
    }
    case SX_GATHER:
      t->at = s; /* a blocked gather comes back to this step for the next peer */
      for (; R(c) < e->world; R(c)++) {
        if (R(c) == e->rank) continue;
        if (!(w = semaphore_at(e, t, &refs[s->dst], R(c)))) FAIL();
        if (!reached(w, R(b))) return block(t, s, w, R(b), R(c));
        if (sx_stray(e, w, R(c))) return disagree(e, t, R(c));
      }
      break;

    case SX_LOOP:
      if (R(n) <= 0) {
        s = t->steps + s->c - 1;
        break;
      }
      R(b) = R(n);
      R(a) = 0;
      R(dst) = 0;
      break;
    case SX_REPEAT:
      t->at = s;
      if (SX_UNLIKELY(spend(e, t, 1))) FAIL();
      if (++R(a) < R(b)) {
        R(dst) = R(a);
        s = t->steps + s->c - 1;
      }
      break;
    case SX_IF:
      if (!R(a)) s = t->steps + s->c - 1;
      break;

    case SX_NATIVE: {
      t->at = s;
      const shunt_native *native = &t->launch->program->natives[s->a];
      t->status = SHUNT_OK;
      if (!native->start) {
        if (sx_native(e, t, native)) FAIL();
        break;
      }
      if (!sx_native_start(e, t, native, s->b)) break;
      t->at = s + 1;
      t->remote = SX_OF_NATIVE;
      return block(t, s, &t->ended, 1, t->rank);
    }
    case SX_NATIVE_END:
      t->at = s;
      if (sx_native_end(e, t)) FAIL();
      break;
    case SX_ARGUMENT_OF:
      e->args[s->n] = R(a);
      break;
    case SX_REMOTE: {
      t->at = s;
      int64_t slots = R(c), bytes = sx_remote_bytes(slots);
      if (bytes < 0) {
        sx_fail(e, t, SX_SLOTS);
        e->failure.x = slots;
        FAIL();
      }
      w = aligned_at(e, t, &refs[s->dst], t->frame[refs[s->dst].rank], bytes);
      if (!w) FAIL();
      if (sx_remote_post(e, t, (shunt_ring *)(void *)w, (uint32_t)slots, R(a), s->b)) break;
      t->at = s - s->b; /* its arguments are the engine's, and others' by the time a slot is free */
      t->remote = SX_OF_COMMAND;
      shunt_ring_command *oldest = t->command;
      int64_t done = __atomic_load_n(&oldest->done, __ATOMIC_RELAXED);
      int64_t number = __atomic_load_n(&oldest->number, __ATOMIC_RELAXED);
      if (done != number && sx_reached(done, number)) { /* it is never free, and a wait for it over at once */
        sx_fail(e, t, SX_DONE);
        e->failure.x = done;
        e->failure.y = number;
        FAIL();
      }
      return block(t, s, (const _Atomic int64_t *)&oldest->done, number, -1);
    }
    case SX_WAIT_REMOTE:
      t->at = s;
      if (!reached((const _Atomic int64_t *)&t->command->done, t->number)) {
        t->remote = SX_OF_COMMAND;
        return block(t, s, (const _Atomic int64_t *)&t->command->done, t->number, -1);
      }
      if (sx_remote_end(e, t)) FAIL();
      break;

    default: /* SX_END */
      t->at = s;
      return SX_TRACK_ENDED;
    }
  }
}

int sx_interpret(sx_engine *e, sx_track *t) { return interpret(e, t, 0); }

int sx_interpret_delayed(sx_engine *e, sx_track *t) { return interpret(e, t, 1); }
