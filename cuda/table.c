/* table.c: finds libcuda and fills the table of driver.h. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#include "call.h"

sc_table sc_cu;

static const char *const symbols[] = {
#define X(name, symbol, arguments) #symbol,
    SC_FUNCTIONS(X)
#undef X
    "cuIpcOpenMemHandle_v2",
};

const char *sc_symbol(int index) { return index >= 0 && index < I_COUNT ? symbols[index] : NULL; }

int sc_load(const char *path, char *message, size_t bytes) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return -1;
  }
  void **slot = (void **)&cu; /* the table is nothing but function pointers, in the order of symbols */
  for (int i = 0; i < I_COUNT; i++) slot[i] = dlsym(library, symbols[i]);
  return 0;
}

int sc_version(int *version) {
  NEED(Init);
  NEED(DriverGetVersion);
  TRY(cu.DriverGetVersion(version));
  return cu.Init(0);
}

void sc_error(int result, const char **name, const char **text) {
  *name = *text = NULL;
  if (cu.GetErrorName) cu.GetErrorName(result, name);
  if (cu.GetErrorString) cu.GetErrorString(result, text);
}
