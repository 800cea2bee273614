/* module.c: modules and their kernels; see driver.h. */
#include "call.h"

int sc_module_load(sc_handle context, const void *image, sc_handle *module) {
  NEED(ModuleLoadData);
  void *m = NULL;
  WITH(context, {
    result = cu.ModuleLoadData(&m, image);
    *module = (uintptr_t)m;
  });
}

int sc_module_unload(sc_handle context, sc_handle module) { CALL(context, ModuleUnload, cu.ModuleUnload(P(module))); }

int sc_function(sc_handle context, sc_handle module, const char *name, int max_dynamic_shared, sc_handle *function) {
  NEED(ModuleGetFunction);
  NEED(FuncSetAttribute);
  NEED(FuncGetAttribute);
  void *f = NULL;
  WITH(context, {
    result = cu.ModuleGetFunction(&f, P(module), name);
    *function = (uintptr_t)f;
    if (!result && max_dynamic_shared > 48 * 1024) {
      /* What the kernel declares itself counts too. */
      int own = 0;
      result = cu.FuncGetAttribute(&own, 1 /* static shared memory */, f);
      if (!result) result = cu.FuncSetAttribute(f, 8, max_dynamic_shared - own);
    }
    /* With lazy loading the first launch would load the code, which can
     * deadlock behind a kernel that spins. Older drivers load it when they are
     * asked for an attribute. */
    int version;
    if (!result) result = cu.FuncLoad ? cu.FuncLoad(f) : cu.FuncGetAttribute(&version, 6, f);
  });
}

int sc_function_attribute(sc_handle context, sc_handle function, int attribute, int *value) {
  CALL(context, FuncGetAttribute, cu.FuncGetAttribute(value, attribute, P(function)));
}
