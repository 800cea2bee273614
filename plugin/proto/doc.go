// Package proto is the contract as protobuf messages: transport.proto, the
// code generated from it, and the conversions to and from the types of package
// plugin. Conversions from messages refuse what does not fit the contract's
// types or limits with code Protocol; what a converted value means is checked
// by the carrier. No process is started and nothing is sent here.
package proto

//go:generate ../../scripts/proto.sh
