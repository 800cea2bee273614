package main

/*
#include "internal.h"
*/
import "C"

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// What is asked of a communicator while others are inside calls on it, and when
// it hangs: nothing here waits for its turn, for a peer or for a stream.

//export go_get_async_error
func go_get_async_error(number C.uint64_t, asyncError *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := reachable(handle(number))
	if err != nil {
		return status(nil, err)
	}
	*asyncError = status(c, c.failure())
	return 0
}

// failure returns why the communicator failed, or nil, in a sentence that says which
// communicator it is.
func (c *communicator) failure() error {
	reason := c.host.Err()
	if reason == nil {
		return nil
	}
	return &plugin.Error{
		Code: plugin.CodeOf(reason), Rank: c.rank, Cause: reason,
		Message: fmt.Sprintf("communicator %s on rank %d has failed: %v; shrink or re-create it", c.host.Label(), c.rank,
			reason),
	}
}

//export go_records
func go_records(number C.uint64_t, json *C.char, capacity C.uint64_t, needed *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := reachable(handle(number))
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
		return status(c, plugin.Errorf(plugin.InvalidArgument,
			"shunt_records: the record takes %d bytes, capacity is %d; it may grow between two calls, so leave room",
			len(record)+1, uint64(capacity)))
	}
	copyText(json, capacity, unsafe.String(unsafe.SliceData(record), len(record)))
	return 0
}

// news returns the part of an error of closing that no call has returned yet: the death of a plugin is an error of
// everything that is released in it, and of the operation before.
func news(err, returned error) error {
	if err == nil || returned == nil {
		return err
	}
	if parts, is := err.(interface{ Unwrap() []error }); is && reflect.TypeOf(err) == joined {
		var rest []error
		for _, part := range parts.Unwrap() {
			rest = append(rest, news(part, returned))
		}
		return errors.Join(rest...)
	}
	for known := range origins(returned) {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}

// joined is the type of what errors.Join makes.
var joined = reflect.TypeOf(errors.Join(plugin.Closed))

// origins returns the errors that an error was made of, itself first. Each is one
// event: other errors that were made of it tell of the same.
func origins(err error) iter.Seq[*plugin.Error] {
	return func(yield func(*plugin.Error) bool) {
		var e *plugin.Error
		for errors.As(err, &e) && yield(e) {
			err = e.Cause
		}
	}
}
