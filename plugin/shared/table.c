#define _GNU_SOURCE
#include "table.h"

#include <dlfcn.h>
#include <link.h>

const void *shunt_table_find(void *handle, uint64_t *symbol_bytes) {
  *symbol_bytes = 0;
  void *table = dlsym(handle, SHUNT_TRANSPORT_SYMBOL);
  if (table == NULL) return NULL;
  Dl_info info;
  const ElfW(Sym) *symbol = NULL;
  if (dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL && info.dli_saddr == table)
    *symbol_bytes = symbol->st_size;
  return table;
}

int shunt_table_ready(void *handle) {
  /* POSIX makes dlsym's result usable as a function. */
  void (*ready)(void);
  *(void **)&ready = dlsym(handle, SHUNT_TRANSPORT_READY_SYMBOL);
  if (ready == NULL) return 0;
  ready();
  return 1;
}

const char *shunt_table_error(void) {
  const char *text = dlerror();
  return text != NULL ? text : "unknown error";
}
