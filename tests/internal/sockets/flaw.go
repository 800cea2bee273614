package sockets

import (
	"os"
	"runtime"
	"sync"
)

// Flaws are the values of the option flaw, each a mistake of an engine that no wrong byte
// tells of, and what the failure of a conformance run says of it.
var Flaws = map[string]string{
	"leak_descriptor": "open descriptors of",
	"leak_thread":     "threads of",
	"leak_memory":     "KiB of memory of",
	"leak_endpoint":   "open descriptors of",
	"any_length":      "recv succeeds on rank 1",
	"overread":        "beside an address that nobody may touch", // with native steps
}

func (e *endpoint) is(flaw string) bool { return e.config.Options["flaw"] == flaw }

// kept holds what leaks.
var kept struct {
	sync.Mutex
	list []any
}

// leak is called for each message.
func (e *endpoint) leak() {
	var leaked any
	switch e.config.Options["flaw"] {
	case "leak_descriptor":
		leaked, _ = os.Open(os.DevNull)
	case "leak_thread":
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	case "leak_memory":
		b := make([]byte, 256<<10)
		for i := range b {
			b[i] = 1
		}
		leaked = b
	default:
		return
	}
	kept.Lock()
	defer kept.Unlock()
	kept.list = append(kept.list, leaked)
}

// keep is called by Close: what the endpoint has open stays open.
func (e *endpoint) keep() {
	if !e.is("leak_endpoint") {
		return
	}
	kept.Lock()
	defer kept.Unlock()
	kept.list = append(kept.list, e.listener, e.peers)
	e.listener, e.peers = nil, nil
}
