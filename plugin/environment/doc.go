// Package environment reads the environment variables of this process as they are now. Where Go does not start the
// program, as in C or Python, package os has them as they were when the library was loaded, and never what the program
// sets afterwards; C has both, and what package os sets. Like getenv, nothing here may run beside a setenv of C.
package environment
