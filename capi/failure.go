package main

/*
#include "internal.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// What is asked of a communicator while others are inside calls on it, and when
// it hangs: nothing here waits for its turn, for a peer or for a stream.

//export go_get_async_error
func go_get_async_error(number C.uint64_t, asyncError *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	*asyncError = status(c, c.failure())
	return 0
}

// failure is why the communicator failed, or nil, in a sentence that says which
// communicator it is.
func (c *communicator) failure() error {
	reason := c.host.Err()
	if reason == nil {
		return nil
	}
	return &plugin.Error{
		Code: plugin.CodeOf(reason), Rank: c.rank, Cause: reason,
		Message: fmt.Sprintf("communicator %s on rank %d has failed: %v; call Shrink or re-create it", c.host.Label(), c.rank, reason),
	}
}

//export go_records
func go_records(number C.uint64_t, json *C.char, capacity C.uint64_t, needed *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	var text bytes.Buffer
	if err := c.host.WriteRecords(&text); err != nil {
		return status(c, err)
	}
	record := bytes.TrimRight(text.Bytes(), "\n")
	*needed = C.uint64_t(len(record) + 1)
	if capacity != 0 && capacity < *needed {
		return status(c, plugin.Errorf(plugin.InvalidArgument, "shunt_records: the record takes %d bytes, capacity is %d; it may grow between two calls, so leave room", len(record)+1, uint64(capacity)))
	}
	copyText(json, capacity, unsafe.String(unsafe.SliceData(record), len(record)))
	return 0
}

// note remembers that a call has answered the communicator's failure.
func (c *communicator) note(err error) {
	if reason := c.host.Err(); reason != nil && errors.Is(err, reason) {
		c.told.Store(true)
	}
}

// answered is the communicator's failure, if a call has answered it.
func (c *communicator) answered() error {
	if !c.told.Load() {
		return nil
	}
	return c.host.Err()
}

// news is what of an error of closing was not answered already: that a plugin died
// is found by all that is let go of in it, and by the operation before.
func news(err, answered error) error {
	var reason *plugin.Error
	if err == nil || !errors.As(answered, &reason) {
		return err
	}
	known := []error{reason}
	if cause, ok := reason.Cause.(*plugin.Error); ok {
		known = append(known, cause)
	}
	return without(err, known)
}

// joined is the type of what errors.Join makes.
var joined = reflect.TypeOf(errors.Join(plugin.Closed))

// without is err less the parts that say one of the known errors again.
func without(err error, known []error) error {
	if reflect.TypeOf(err) == joined {
		var rest []error
		for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
			rest = append(rest, without(part, known))
		}
		return errors.Join(rest...)
	}
	for _, k := range known {
		if errors.Is(err, k) {
			return nil
		}
	}
	return err
}
