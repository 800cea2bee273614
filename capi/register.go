package main

/*
#include "internal.h"
*/
import "C"

import "unsafe"

//export go_register
func go_register(number C.uint64_t, memory unsafe.Pointer, bytes C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(c, c.host.Register(memory, int64(bytes)))
}

//export go_register_symmetric
func go_register_symmetric(number C.uint64_t, memory unsafe.Pointer, bytes C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(c, c.host.RegisterSymmetric(memory, int64(bytes)))
}

//export go_peer_address
func go_peer_address(number C.uint64_t, memory unsafe.Pointer, peer C.int32_t,
	address *unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	*address, err = c.host.PeerAddress(memory, int(peer))
	return status(c, err)
}

//export go_deregister
func go_deregister(number C.uint64_t, memory unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(c, c.host.Deregister(memory))
}
