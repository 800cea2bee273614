// Package network makes hosts of network, process and mount namespaces, joined by a network in memory whose links can
// be cut, slow, lossy and closed to some ports, and runs ranks on them. It needs root on Linux, ip and nsenter. All of
// it ends with the process that made it.
package network
