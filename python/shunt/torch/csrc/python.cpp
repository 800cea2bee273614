#include <torch/csrc/utils/pybind.h>  // first, as Python.h must be

#include "python.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace shunt_torch {

namespace {

bool mainThread() {
  static thread_local const bool main = static_cast<pid_t>(syscall(SYS_gettid)) == getpid();
  return main;
}

}  // namespace

bool onMainThread() { return mainThread() && Py_IsInitialized(); }

bool pythonEnds() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

void stayIfPythonEnds() {
  while (pythonEnds() && !mainThread()) std::this_thread::sleep_for(std::chrono::hours(1));
}

bool signalRaised() {
  pybind11::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

void throwPythonError() {
  pybind11::gil_scoped_acquire gil;
  throw pybind11::error_already_set();
}

bool streamIsCaptured() {
  pybind11::gil_scoped_acquire gil;
  return pybind11::module_::import("torch.cuda").attr("is_current_stream_capturing")().cast<bool>();
}

WithoutGil::WithoutGil() {
  if (!Py_IsInitialized() || !PyGILState_Check()) return;
  ends_ = pythonEnds();
  state_ = PyEval_SaveThread();
}

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  if (!ends_) stayIfPythonEnds();
  PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

}  // namespace shunt_torch
