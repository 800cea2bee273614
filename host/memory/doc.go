// Package memory maps regions of host memory and hands their descriptors from
// rank to rank.
//
// A Segment is memory that this process makes, a Mapping is anybody's memory
// mapped here, a Share exchanges the regions of all ranks of a communicator,
// and a Cache keeps mappings that are used again. Descriptors travel over
// abstract Unix sockets between processes of one user that know the job's
// secret; nothing has to be unlinked when a process is killed.
//
// What is in the memory, and device memory, are not known here: handles of
// other kinds pass through Exchange untouched and are refused by MapHandle.
package memory
