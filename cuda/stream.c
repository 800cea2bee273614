/* stream.c: streams and events; see driver.h. */
#include "call.h"

int sc_stream_create(sc_handle context, int priority, sc_handle *stream) {
  NEED(StreamCreateWithPriority);
  void *s = NULL;
  WITH(context, {
    result = cu.StreamCreateWithPriority(&s, 1 /* does not wait for the default stream */, priority);
    *stream = (uintptr_t)s;
  });
}

int sc_stream_priority(sc_handle context, sc_handle stream, int *priority) {
  CALL(context, StreamGetPriority, cu.StreamGetPriority(P(stream), priority));
}
int sc_stream_destroy(sc_handle context, sc_handle stream) {
  CALL(context, StreamDestroy, cu.StreamDestroy(P(stream)));
}
int sc_stream_synchronize(sc_handle context, sc_handle stream) {
  CALL(context, StreamSynchronize, cu.StreamSynchronize(P(stream)));
}
int sc_stream_query(sc_handle context, sc_handle stream) { CALL(context, StreamQuery, cu.StreamQuery(P(stream))); }
int sc_copy(sc_handle context, sc_ptr to, sc_ptr from, uint64_t bytes, sc_handle stream) {
  CALL(context, MemcpyAsync, cu.MemcpyAsync(to, from, bytes, P(stream)));
}
int sc_set(sc_handle context, sc_ptr to, unsigned char value, uint64_t bytes, sc_handle stream) {
  CALL(context, MemsetD8Async, cu.MemsetD8Async(to, value, bytes, P(stream)));
}
int sc_write_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value) {
  CALL(context, StreamWriteValue64, cu.StreamWriteValue64(P(stream), word, value, 0));
}
int sc_wait_value(sc_handle context, sc_handle stream, sc_ptr word, uint64_t value) {
  CALL(context, StreamWaitValue64, cu.StreamWaitValue64(P(stream), word, value, 0 /* by signed difference */));
}

int sc_event_create(sc_handle context, int timing, sc_handle *event) {
  NEED(EventCreate);
  void *e = NULL;
  WITH(context, {
    result = cu.EventCreate(&e, timing ? 0 : 2);
    *event = (uintptr_t)e;
  });
}

int sc_event_destroy(sc_handle context, sc_handle event) { CALL(context, EventDestroy, cu.EventDestroy(P(event))); }
int sc_event_record(sc_handle context, sc_handle event, sc_handle stream) {
  CALL(context, EventRecord, cu.EventRecord(P(event), P(stream)));
}
int sc_event_query(sc_handle context, sc_handle event) { CALL(context, EventQuery, cu.EventQuery(P(event))); }
int sc_event_elapsed(sc_handle context, sc_handle from, sc_handle to, float *milliseconds) {
  CALL(context, EventElapsedTime, cu.EventElapsedTime(milliseconds, P(from), P(to)));
}
int sc_stream_wait(sc_handle context, sc_handle stream, sc_handle event) {
  CALL(context, StreamWaitEvent, cu.StreamWaitEvent(P(stream), P(event), 0));
}

int sc_event_record_context(sc_handle context, sc_handle event) {
  /* cuCtxRecordEvent came with 12.5. */
  NEED(CtxSynchronize);
  CALL(context, EventRecord, cu.CtxRecordEvent ? cu.CtxRecordEvent(P(context), P(event)) : cu.CtxSynchronize());
}
