// Package bootstrap brings the ranks of a job together.
//
// Join finds the store of the job, by unique id, address, file or the
// launcher's environment, and returns a Session. A Session's Groups gather,
// broadcast, agree and wait; its failures say which rank died, gave up or fell
// silent. It is the control plane: everything is cold, small and named.
//
// The store runs in the process that made the unique id (rank 0, as a rule), keeps
// one authenticated connection to every rank, and alone decides which ranks are alive
// and what was agreed, so that all ranks learn the same. When that process ends, the
// lowest remaining rank takes the store over. Ranks may be processes or goroutines of
// one process; a process may hold any number of sessions.
//
// Secrecy: a process that knows the job's 128-bit secret may join. Both ends prove it, and every frame is encrypted and
// authenticated (AES-GCM). Where the launcher gives no secret (torchrun, MPI, Slurm, a bare tcp:// address) one is
// derived from the job's name, the user and SHUNT_SECRET: without SHUNT_SECRET it tells jobs apart, but does not keep
// out a process that can guess them.
//
// No tensor moves here, nothing is mapped here, and no transport is known here.
package bootstrap
