// python.hpp: what the backend asks of the interpreter. Only python.cpp and module.cpp include Python.h, so that the
// rest is compiled once for all versions of CPython.
#pragma once

namespace shunt_torch {

// True on the main thread of a process whose interpreter runs. Only it has signal handlers to run.
bool onMainThread();

// Runs Python's signal handlers; returns whether one raised, as that of Ctrl-C does. Takes the GIL: call it without.
bool signalRaised();

// Throws the Python exception that signalRaised has left.
[[noreturn]] void throwPythonError();

// Lets go of the GIL, where this thread has it, until its end.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_;
};

}  // namespace shunt_torch
