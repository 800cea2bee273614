#include <torch/csrc/utils/pybind.h>  // first, as Python.h must be

#include "python.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace shunt_torch {

bool onMainThread() {
  static thread_local const bool main = static_cast<pid_t>(syscall(SYS_gettid)) == getpid();
  return main && Py_IsInitialized();
}

bool signalRaised() {
  pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

void throwPythonError() {
  pybind11::gil_scoped_acquire gil;
  throw pybind11::error_already_set();
}

WithoutGil::WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

}  // namespace shunt_torch
