/*
 * _calls.c: the quick path of a call; _quick.py says what it is. It is not linked
 * with libshunt: _library.py loads that and gives addresses.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000 /* of 3.11, the first that has buffers */
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* ---- functions of the library ---- */

#define MOST 11 /* arguments */

/* Linux on 64-bit machines passes every pointer and integer in 8 bytes, the first ones in
 * registers, and the callee reads those that it knows: so one function type serves all. */
typedef int32_t called(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t);
_Static_assert(sizeof(void *) == 8, "arguments of 8 bytes");

struct function {
  called *address;
  int arguments;
  char kinds[MOST + 1]; /* p, q, I or i: see _quick.py */
};
static const char function_name[] = "shunt.function";

/* number writes an argument as the library takes it. */
static int number(PyObject *given, char kind, uint64_t *into) {
  if (kind == 'p') {
    *into = given == Py_None ? 0 : PyLong_AsUnsignedLongLong(given);
    return *into == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
  }
  int64_t value = PyLong_AsLongLong(given);
  if (value == -1 && PyErr_Occurred())
    return -1;
  if ((kind == 'i' && value != (int32_t)value) || (kind == 'I' && value != (uint32_t)value)) {
    PyErr_Format(PyExc_OverflowError, "%lld does not fit 32 bits", (long long)value);
    return -1;
  }
  *into = (uint64_t)value;
  return 0;
}

/* run returns the status. Other threads run meanwhile. */
static PyObject *run(const struct function *function, const uint64_t v[MOST]) {
  int32_t status;
  Py_BEGIN_ALLOW_THREADS
  status = function->address(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]);
  Py_END_ALLOW_THREADS
  return PyLong_FromLong(status);
}

static int wrong_count(const struct function *function, Py_ssize_t given) {
  PyErr_Format(PyExc_TypeError, "%zd arguments, want %d", given, function->arguments);
  return -1;
}

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  const struct function *function = PyCapsule_GetPointer(self, function_name);
  uint64_t v[MOST] = {0};
  if (function == NULL || (n != function->arguments && wrong_count(function, n)))
    return NULL;
  for (int i = 0; i < n; i++)
    if (number(args[i], function->kinds[i], &v[i]))
      return NULL;
  return run(function, v);
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef call_method = {"call", FAST(call), METH_FASTCALL, NULL};

static void free_function(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, function_name)); }

static PyObject *new_function(PyObject *module, PyObject *args) {
  (void)module;
  unsigned long long address;
  const char *kinds;
  if (!PyArg_ParseTuple(args, "Ks", &address, &kinds))
    return NULL;
  size_t arguments = strlen(kinds);
  if (address == 0 || arguments > MOST || strspn(kinds, "pqIi") != arguments)
    return PyErr_Format(PyExc_ValueError, "no function of %s at %llu", kinds, address);
  struct function *function = PyMem_Calloc(1, sizeof *function);
  if (function == NULL)
    return PyErr_NoMemory();
  function->address = (called *)(uintptr_t)address;
  function->arguments = (int)arguments;
  memcpy(function->kinds, kinds, arguments);
  PyObject *capsule = PyCapsule_New(function, function_name, free_function);
  if (capsule == NULL) {
    PyMem_Free(function);
    return NULL;
  }
  PyObject *made = PyCFunction_New(&call_method, capsule);
  Py_DECREF(capsule);
  return made;
}

/* ---- arrays ---- */

/* What is known of a library of arrays is a tuple: the type of its arrays; a dict from
 * what they call their dtypes to DType. Of numpy also the name "dtype", and what is known
 * of torch for host memory, or None. Of torch its DLPack exchange, the names of what an
 * exchange does not say, and for GPUs stream_of. */
enum { TYPE, DTYPES, DTYPE_NAME, TENSORS, EXCHANGE = DTYPE_NAME, IS_NEG_NAME, REQUIRES_GRAD_NAME, STREAM_OF };
#define KNOWN(self, what) PyTuple_GetItem(self, what)

struct memory {
  uint64_t address;
  int64_t count;
  PyObject *dtype; /* borrowed of the dict */
  int32_t gpu;     /* of tensors */
};

/* A description returns 1; 0 if the quick path does not take this object; or -1 with
 * an exception. */
typedef int description(PyObject *self, PyObject *object, struct memory *memory);

/* refused leaves it to the other way to say what is wrong. */
static int refused(void) {
  PyErr_Clear();
  return 0;
}

/* look_up finds the DType of what an array calls its dtype, which it takes. */
static int look_up(PyObject *self, PyObject *own, struct memory *memory) {
  if (own == NULL)
    return -1;
  memory->dtype = PyDict_GetItemWithError(KNOWN(self, DTYPES), own);
  Py_DECREF(own);
  return memory->dtype != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
}

/* An array of numpy keeps its memory while someone has the array: its buffer need not
 * be held. */
static int describe_numpy(PyObject *self, PyObject *object, struct memory *memory) {
  Py_buffer view;
  int known = look_up(self, PyObject_GetAttr(object, KNOWN(self, DTYPE_NAME)), memory);
  if (known <= 0)
    return known;
  if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS))
    return refused();
  memory->address = (uintptr_t)view.buf;
  memory->count = view.len / view.itemsize;
  known = !view.readonly && view.len > 0;
  PyBuffer_Release(&view);
  return known;
}

/* Of dlpack.h, version 1.3. */
struct dl_tensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct dl_exchange {
  uint32_t major, minor;
  void *older, *allocate, *lend, *take;
  int (*look)(void *object, struct dl_tensor *tensor); /* dltensor_from_py_object_no_sync */
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream); /* current_work_stream */
};
static const char exchange_name[] = "dlpack_exchange_api";
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };

static const struct dl_exchange *exchange_of(PyObject *self) {
  return PyCapsule_GetPointer(KNOWN(self, EXCHANGE), exchange_name);
}

/* is_true returns the truth of what it takes, or -1 with an exception if that is NULL. */
static int is_true(PyObject *found) {
  int truth = found == NULL ? -1 : PyObject_IsTrue(found);
  Py_XDECREF(found);
  return truth;
}

/* An exchange fails for tensors that have no plain memory: of another layout, quantized,
 * or batched by a transform. It does not say that a tensor stands for the negative of its
 * memory. Wrappers have none, and so a null address. */
static int describe_tensor(PyObject *self, PyObject *object, struct memory *memory, int on_gpu) {
  struct dl_tensor tensor;
  if ((PyObject *)Py_TYPE(object) != KNOWN(self, TYPE))
    return 0;
  if (exchange_of(self)->look(object, &tensor))
    return refused();
  memory->address = (uintptr_t)tensor.data + tensor.byte_offset;
  memory->count = 1;
  memory->gpu = tensor.device_id;
  for (int i = tensor.ndim - 1; i >= 0; memory->count *= tensor.shape[i--])
    if (tensor.strides != NULL && tensor.shape[i] != 1 && tensor.strides[i] != memory->count)
      return 0;
  int device = tensor.device_type;
  if (!(on_gpu ? device == DL_CUDA : device == DL_CPU || device == DL_CUDA_HOST) || tensor.lanes != 1 ||
      memory->count == 0 || tensor.data == NULL)
    return 0;
  int negative = is_true(PyObject_CallMethodObjArgs(object, KNOWN(self, IS_NEG_NAME), NULL));
  if (negative)
    return negative < 0 ? -1 : 0;
  return look_up(self, PyLong_FromLong(tensor.code << 8 | tensor.bits), memory);
}

static int describe_on_gpu(PyObject *self, PyObject *object, struct memory *memory) {
  return describe_tensor(self, object, memory, 1);
}

/* The full path asks tensors in host memory for a capsule, which torch refuses where a
 * tensor requires a gradient. */
static int describe_on_host(PyObject *self, PyObject *object, struct memory *memory) {
  if ((PyObject *)Py_TYPE(object) == KNOWN(self, TYPE))
    return describe_numpy(self, object, memory);
  PyObject *tensors = KNOWN(self, TENSORS);
  if (tensors == Py_None)
    return 0;
  int known = describe_tensor(tensors, object, memory, 0);
  if (known <= 0)
    return known;
  int requires = is_true(PyObject_GetAttr(object, KNOWN(tensors, REQUIRES_GRAD_NAME)));
  return requires < 0 ? -1 : !requires;
}

/* stream_number converts a stream argument for the library; it returns what a
 * description returns. Arrays in host memory have no streams, and what is wrong with
 * another one the full path says, to the other ranks too. */
static int stream_number(PyObject *self, description *describe, PyObject *stream, int32_t gpu, uint64_t *into) {
  if (describe == describe_on_host)
    return stream == Py_None;
  if (stream == Py_None) {
    void *current;
    if (exchange_of(self)->current_stream(DL_CUDA, gpu, &current))
      return -1;
    *into = (uintptr_t)current;
    return 1;
  }
  if (PyLong_CheckExact(stream) && number(stream, 'p', into) == 0)
    return 1;
  PyErr_Clear();
  PyObject *found = PyObject_CallFunctionObjArgs(KNOWN(self, STREAM_OF), stream, NULL);
  int wrong = found == NULL || number(found, 'p', into);
  Py_XDECREF(found);
  if (!wrong)
    return 1;
  return PyErr_ExceptionMatches(PyExc_Exception) ? refused() : -1;
}

static PyObject *described(PyObject *self, PyObject *object, description *describe) {
  struct memory memory = {0};
  int known = describe(self, object, &memory);
  if (known < 0)
    return NULL;
  if (!known)
    Py_RETURN_NONE;
  if (describe == describe_on_host)
    return Py_BuildValue("KLOO", (unsigned long long)memory.address, (long long)memory.count, memory.dtype, Py_None);
  return Py_BuildValue("KLOi", (unsigned long long)memory.address, (long long)memory.count, memory.dtype,
                       (int)memory.gpu);
}

/* Arguments of quick, the numbers behind them; and of the functions that it calls. */
enum { HANDLE, FUNCTION, SEND, RECV, SEND_BLOCKS, RECV_BLOCKS, STREAM, NUMBERS };
enum { TO_COMM, TO_SEND, TO_RECV, TO_COUNT, TO_DTYPE, TO_NUMBERS };

static PyObject *quick(PyObject *self, PyObject *const *args, Py_ssize_t n, description *describe) {
  PyObject *its = n >= NUMBERS && PyCFunction_Check(args[FUNCTION]) ? PyCFunction_GetSelf(args[FUNCTION]) : NULL;
  const struct function *function =
      PyCapsule_IsValid(its, function_name) ? PyCapsule_GetPointer(its, function_name) : NULL;
  if (function == NULL || strncmp(function->kinds, "pppqI", TO_NUMBERS) != 0) {
    PyErr_SetString(PyExc_TypeError,
                    "want a handle, the function of a collective, two arrays, their blocks and a stream");
    return NULL;
  }
  Py_ssize_t last = TO_NUMBERS + n - NUMBERS; /* the stream */
  if (last + 1 != function->arguments && wrong_count(function, last + 1))
    return NULL;
  uint64_t v[MOST] = {0};
  struct memory memory = {0};
  int32_t gpu = 0;
  int found = 0;
  for (int i = 0; i < 2; i++) {
    int64_t blocks = PyLong_AsLongLong(args[SEND_BLOCKS + i]);
    if (blocks <= 0) {
      if (blocks < 0 && PyErr_Occurred())
        return NULL;
      continue;
    }
    int known = found && args[RECV] == args[SEND] ? 1 : describe(self, args[SEND + i], &memory);
    uint64_t dtype = 0;
    if (known < 0 || (known && number(memory.dtype, 'I', &dtype)))
      return NULL;
    uint64_t count = (uint64_t)(memory.count / blocks);
    if (!known || memory.count % blocks || (found && (count != v[TO_COUNT] || dtype != v[TO_DTYPE])))
      Py_RETURN_NONE;
    if (!found++)
      gpu = memory.gpu;
    v[TO_SEND + i] = memory.address;
    v[TO_COUNT] = count;
    v[TO_DTYPE] = dtype;
  }
  int known = stream_number(self, describe, args[STREAM], gpu, &v[last]);
  if (known < 0 || number(args[HANDLE], 'p', &v[TO_COMM]))
    return NULL;
  for (Py_ssize_t i = TO_NUMBERS; i < last; i++)
    if (number(args[NUMBERS + i - TO_NUMBERS], function->kinds[i], &v[i]))
      return NULL;
  if (!known)
    Py_RETURN_NONE;
  return run(function, v);
}

/* ---- the module ---- */

static PyObject *array_described(PyObject *self, PyObject *object) { return described(self, object, describe_on_host); }
static PyObject *tensor_described(PyObject *self, PyObject *object) { return described(self, object, describe_on_gpu); }
static PyObject *array_quick(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  return quick(self, args, n, describe_on_host);
}
static PyObject *tensor_quick(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  return quick(self, args, n, describe_on_gpu);
}

static PyMethodDef array_methods[] = {
    {"described", array_described, METH_O, NULL},
    {"quick", FAST(array_quick), METH_FASTCALL, NULL},
};
static PyMethodDef tensor_methods[] = {
    {"described", tensor_described, METH_O, NULL},
    {"quick", FAST(tensor_quick), METH_FASTCALL, NULL},
};

/* pair returns (described, quick) for a library; it steals the reference to known. */
static PyObject *pair(PyObject *known, PyMethodDef methods[2]) {
  if (known == NULL)
    return NULL;
  PyObject *made = Py_BuildValue("NN", PyCFunction_New(&methods[0], known), PyCFunction_New(&methods[1], known));
  Py_DECREF(known);
  return made;
}

/* known_tensors returns what is known of tensors; stream_of is None for those in host memory. */
static PyObject *known_tensors(PyObject *type, PyObject *dtypes, PyObject *exchange, PyObject *stream_of) {
  const struct dl_exchange *functions = PyCapsule_GetPointer(exchange, exchange_name);
  if (functions == NULL)
    return NULL;
  if (functions->major != 1 || functions->look == NULL || functions->current_stream == NULL)
    return PyErr_Format(PyExc_ValueError, "DLPack %u.%u, want 1", functions->major, functions->minor);
  return Py_BuildValue("OOONNO", type, dtypes, exchange, PyUnicode_InternFromString("is_neg"),
                       PyUnicode_InternFromString("requires_grad"), stream_of);
}

static PyObject *arrays(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *type, *dtypes, *tensor = NULL, *exchanged = NULL, *exchange = NULL;
  if (!PyArg_ParseTuple(args, "O!O!|O!O!O", &PyType_Type, &type, &PyDict_Type, &dtypes, &PyType_Type, &tensor,
                        &PyDict_Type, &exchanged, &exchange))
    return NULL;
  if (exchange == NULL)
    return pair(Py_BuildValue("OONO", type, dtypes, PyUnicode_InternFromString("dtype"), Py_None), array_methods);
  PyObject *tensors = known_tensors(tensor, exchanged, exchange, Py_None);
  if (tensors == NULL)
    return NULL;
  return pair(Py_BuildValue("OONN", type, dtypes, PyUnicode_InternFromString("dtype"), tensors), array_methods);
}

static PyObject *tensors(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *type, *dtypes, *exchange, *stream_of;
  if (!PyArg_ParseTuple(args, "O!O!OO", &PyType_Type, &type, &PyDict_Type, &dtypes, &exchange, &stream_of))
    return NULL;
  return pair(known_tensors(type, dtypes, exchange, stream_of), tensor_methods);
}

static PyMethodDef functions[] = {
    {"function", new_function, METH_VARARGS, "function(address, kinds): a callable of a function of the library"},
    {"arrays", arrays, METH_VARARGS,
     "arrays(ndarray, dtypes, [type, exchanged, exchange]): described and quick for arrays of numpy, and tensors in "
     "host memory"},
    {"tensors", tensors, METH_VARARGS, "tensors(type, dtypes, exchange, stream_of): the same for tensors on GPUs"},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "shunt._calls", NULL, 0, functions, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__calls(void) { return PyModuleDef_Init(&module); }
