// Package plugin is the contract between Shunt's host and its transports.
//
// It holds the interfaces a transport implements, the plans it returns, and the
// tables (error codes, dtypes, reduction ops, collectives) both sides use. The same
// contract stands in shunt_transport.h for C and in proto/transport.proto for a
// process, in the same order and with the same names. Nothing here imports another
// package of this repository, and nothing here loads, runs or chooses anything:
// carriers live in plugin/process and plugin/shared, and what runs plans lives in
// host/executor.
package plugin

//go:generate go run ../internal/gentables
