/* graph.c: captures, graphs and the tokens of graphs that are gone; see
 * driver.h. */
#include <stdatomic.h>
#include <stdlib.h>

#include "call.h"

int sc_capture_begin(sc_handle context, sc_handle stream) {
  CALL(context, StreamBeginCapture, cu.StreamBeginCapture(P(stream), 1 /* this thread's calls only */));
}

int sc_capture_end(sc_handle context, sc_handle stream, sc_handle *graph) {
  NEED(StreamEndCapture);
  void *g = NULL;
  WITH(context, {
    result = cu.StreamEndCapture(P(stream), &g);
    *graph = (uintptr_t)g;
  });
}

int sc_capture_info(sc_handle context, sc_handle stream, int *status, uint64_t *id, sc_handle *graph) {
  NEED(StreamGetCaptureInfo);
  void *g = NULL;
  WITH(context, {
    result = cu.StreamGetCaptureInfo(P(stream), status, id, &g, NULL, NULL);
    *graph = (uintptr_t)g;
  });
}

int sc_graph_instantiate(sc_handle context, sc_handle graph, sc_handle *exec) {
  NEED(GraphInstantiate);
  void *e = NULL;
  WITH(context, {
    result = cu.GraphInstantiate(&e, P(graph), 0);
    *exec = (uintptr_t)e;
  });
}

int sc_graph_launch(sc_handle context, sc_handle exec, sc_handle stream) {
  CALL(context, GraphLaunch, cu.GraphLaunch(P(exec), P(stream)));
}

int sc_graph_destroy(sc_handle graph) {
  NEED(GraphDestroy);
  return cu.GraphDestroy(P(graph));
}

int sc_graph_exec_destroy(sc_handle exec) {
  NEED(GraphExecDestroy);
  return cu.GraphExecDestroy(P(exec));
}

/* Tokens of graphs that are gone: a stack that the driver's thread pushes to
 * without a lock or a CUDA call, and that sc_released empties at once. */
typedef struct node {
  struct node *next;
  uint64_t token;
} node;

static _Atomic(node *) released;

static void push(void *data) {
  node *n = data;
  n->next = atomic_load_explicit(&released, memory_order_relaxed);
  /* Release: the thread that takes the stack sees next and token. */
  while (!atomic_compare_exchange_weak_explicit(&released, &n->next, n, memory_order_release, memory_order_relaxed)) {
  }
}

int sc_graph_retain(sc_handle graph, uint64_t token) {
  NEED(UserObjectCreate);
  NEED(UserObjectRelease);
  NEED(GraphRetainUserObject);
  node *n = malloc(sizeof *n);
  if (!n) return 2;
  n->token = token;
  void *object;
  int result = cu.UserObjectCreate(&object, n, push, 1, 1 /* no destructor synchronization */);
  if (result) {
    free(n);
    return result;
  }
  /* The reference moves to the graph: nothing is left here to release, but where the graph does not take it. Then the
   * token comes without having been in a graph. */
  result = cu.GraphRetainUserObject(P(graph), object, 1, 1);
  if (result) cu.UserObjectRelease(object, 1);
  return result;
}

int sc_released(uint64_t *tokens, int max) {
  /* Acquire: see push. */
  node *n = atomic_exchange_explicit(&released, NULL, memory_order_acquire);
  int count = 0;
  while (n && count < max) {
    node *next = n->next;
    tokens[count++] = n->token;
    free(n);
    n = next;
  }
  while (n) { /* no room: back on the stack */
    node *next = n->next;
    push(n);
    n = next;
  }
  return count;
}
