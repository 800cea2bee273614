/*
 * open.h: opens NVIDIA's NCCL, for the transport and for the NCCL-compatible library (capi/nccl).
 *
 * NCCL calls its own public functions by name. Where a library with the same names was loaded before it, as by
 * LD_PRELOAD, they lead there. RTLD_DEEPBIND helps only who opens NCCL first: import torch has often loaded it already
 * (it preloads CUDA's packages), and dlopen returns that copy, with the bindings that it has. So the copy's references
 * to functions of its own are set to those functions.
 */
#ifndef NL_OPEN_H
#define NL_OPEN_H

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NL_REFERS(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define NL_REFERS(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#error "which relocations hold a function's address?"
#endif

struct nl_copy {
  uintptr_t inside; /* the address of one of its functions */
  bool found, bound;
  /* of the library, in memory */
  uintptr_t base, read_only, read_only_end;
  const ElfW(Sym) *symbols;
  const char *names;
};

static uintptr_t nl_page(uintptr_t at) { return at & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1); }

/* nl_set writes a reference, which may lie in what the loader has made read-only. */
static bool nl_set(const struct nl_copy *c, uintptr_t *at, uintptr_t value) {
  uintptr_t page = nl_page((uintptr_t)at);
  bool closed = (uintptr_t)at >= c->read_only && (uintptr_t)at < c->read_only_end;
  if (closed && mprotect((void *)page, sizeof *at, PROT_READ | PROT_WRITE) != 0)
    return false;
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
  return !closed || mprotect((void *)page, sizeof *at, PROT_READ) == 0;
}

static bool nl_bind(const struct nl_copy *c, const ElfW(Rela) *relocations, size_t bytes) {
  for (const ElfW(Rela) *r = relocations; bytes >= sizeof *r; r++, bytes -= sizeof *r) {
    const ElfW(Sym) *symbol = &c->symbols[ELF64_R_SYM(r->r_info)];
    const char *name = c->names + symbol->st_name;
    if (!NL_REFERS(ELF64_R_TYPE(r->r_info)) || symbol->st_shndx == SHN_UNDEF ||
        ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || strncmp(name + (*name == 'p'), "nccl", 4) != 0)
      continue;
    uintptr_t *at = (uintptr_t *)(c->base + r->r_offset), own = c->base + symbol->st_value + (uintptr_t)r->r_addend;
    if (*at != own && !nl_set(c, at, own))
      return false;
  }
  return true;
}

static int nl_bind_copy(struct dl_phdr_info *info, size_t size, void *data) {
  struct nl_copy *c = (struct nl_copy *)data;
  const ElfW(Dyn) *dynamic = NULL;
  const ElfW(Rela) *relocations = NULL, *of_calls = NULL;
  size_t bytes = 0, bytes_of_calls = 0;
  (void)size;
  c->base = info->dlpi_addr;
  c->read_only = c->read_only_end = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t at = c->base + part->p_vaddr;
    if (part->p_type == PT_LOAD && c->inside >= at && c->inside - at < part->p_memsz)
      c->found = true;
    if (part->p_type == PT_DYNAMIC)
      dynamic = (const ElfW(Dyn) *)at;
    if (part->p_type == PT_GNU_RELRO) {
      c->read_only = nl_page(at); /* whole pages, as the loader does */
      c->read_only_end = nl_page(at + part->p_memsz);
    }
  }
  if (!c->found)
    return 0;
  for (; dynamic != NULL && dynamic->d_tag != DT_NULL; dynamic++) /* glibc has made addresses of them */
    switch (dynamic->d_tag) {
      case DT_SYMTAB: c->symbols = (const ElfW(Sym) *)dynamic->d_un.d_ptr; break;
      case DT_STRTAB: c->names = (const char *)dynamic->d_un.d_ptr; break;
      case DT_RELA: relocations = (const ElfW(Rela) *)dynamic->d_un.d_ptr; break;
      case DT_RELASZ: bytes = dynamic->d_un.d_val; break;
      case DT_JMPREL: of_calls = (const ElfW(Rela) *)dynamic->d_un.d_ptr; break;
      case DT_PLTRELSZ: bytes_of_calls = dynamic->d_un.d_val; break;
      default: break;
    }
  c->bound = c->symbols != NULL && c->names != NULL && nl_bind(c, relocations, bytes) &&
             nl_bind(c, of_calls, bytes_of_calls);
  return 1;
}

/* nl_open opens the library at path, or returns NULL and says why. It calls itself from then on. */
static void *nl_open(const char *path, char *message, size_t bytes) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char *why = dlerror();
    snprintf(message, bytes, "%s", why ? why : "dlopen failed");
    return NULL;
  }
  if (dlsym(library, "shunt_nccl_compatible") != NULL) { /* under NCCL's name, which would call Shunt again */
    snprintf(message, bytes, "%s is Shunt's NCCL-compatible library, not NVIDIA's", path);
    dlclose(library);
    return NULL;
  }
  struct nl_copy copy = {.inside = (uintptr_t)dlsym(library, "ncclGetVersion")};
  if (copy.inside == 0)
    return library; /* whoever needs the function says that it is missing */
  (void)dl_iterate_phdr(nl_bind_copy, &copy); /* under the loader's lock: nobody else does it meanwhile */
  if (copy.bound)
    return library;
  snprintf(message, bytes, "%s: its references to its own functions cannot be set", path);
  dlclose(library);
  return NULL;
}

#endif
