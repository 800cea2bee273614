// Package memory maps regions, and hands their descriptors from rank to rank.
//
// A Segment is memory that this process makes, a Mapping is any process's memory
// mapped here, and a Share exchanges the regions of all ranks of a communicator.
// Descriptors travel over abstract Unix sockets between processes of one user
// that know the job's secret; nothing has to be unlinked when a process is killed.
//
// A DeviceMapping is the same for memory of a GPU, through package cuda.
//
// What is in the memory is not known here. Handles of kinds that neither can
// map pass through Exchange untouched.
package memory
