/*
 * loads.c LIBRARY [FOLDER]: loads the library, goes to the folder, and makes a unique id, which needs libshunt.so. It
 * prints the failure.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "symbols_gen.h"

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    puts(dlerror());
    return 1;
  }
  if (argc > 2 && chdir(argv[2]) != 0) {
    perror(argv[2]);
    return 1;
  }
  nc_type_ncclGetUniqueId *make = (nc_type_ncclGetUniqueId *)dlsym(library, "ncclGetUniqueId");
  nc_type_ncclGetLastError *text = (nc_type_ncclGetLastError *)dlsym(library, "ncclGetLastError");
  ncclUniqueId id;
  if (make(&id) == ncclSuccess)
    return 0;
  puts(text(NULL));
  return 1;
}
