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

// True from the moment on at which Python ends all threads but the main one when they ask for the GIL.
bool pythonEnds();

// Called on the way back to Python: then does not return, but on the main thread. Python would end the thread by
// unwinding its stack, which C++ does not survive; from 3.14 on it keeps such threads, as this does.
void stayIfPythonEnds();

// stayIfPythonEnds at the end of a call that torch makes without the GIL.
struct StayIfPythonEnds {
  ~StayIfPythonEnds() { stayIfPythonEnds(); }
};

// Whether the program captures the current stream of a GPU into a graph.
bool streamIsCaptured();

// Lets go of the GIL, where this thread has it, until its end.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_ = nullptr;
  bool ends_ = false;  // this thread itself ends Python, as no other has the GIL then
};

}  // namespace shunt_torch
