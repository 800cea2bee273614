// Package nccltest is a library with the functions of NCCL for the CUDA driver in memory
// (cuda/cudatest), so that everything around NCCL runs in tests, under the race detector
// and without a GPU. It is a shared object, opened as NCCL's is; the ranks of a world
// are goroutines of one process, each with a driver of its own. Results are those of the
// tables, to the bit, which NCCL's are not always.
package nccltest

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "fake.h"

int goName(char *);
int goBegin(char *, int, int, int, uint64_t *);
int goSplit(uint64_t, int, uint64_t *);
int goState(uint64_t);
int goEnd(uint64_t, int);
int goScalar(uint64_t, uint64_t, int);
int goUnscalar(uint64_t, int);
int goRun(fake_op *, int);
char *goWords(uint64_t);
int goKnow(uint64_t, uint64_t, uint64_t, uint64_t *);
int goForget(uint64_t, uint64_t);

static const char *install(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  void (*to)(const fake_hooks *) = (void (*)(const fake_hooks *))dlsym(library, "nccltest_install");
  if (!to) return dlerror();
  fake_hooks hooks = {goName, (int (*)(const char *, int, int, int, uint64_t *))goBegin, goSplit, goState, goEnd,
                      goScalar, goUnscalar, (int (*)(const fake_op *, int))goRun, (const char *(*)(uint64_t))goWords,
                      goKnow, goForget};
  to(&hooks);
  return NULL;
}
*/
import "C"

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// The sources travel with the binary: with -trimpath it does not know where they lie.
//
//go:embed fake.c fake.h
var sources embed.FS

// Build compiles the library into a folder, with flags for the compiler: "-DFAKE_VERSION=21400" makes it older,
// `-DFAKE_CUDA="13.0"` has it built for that CUDA, "-DLACKING" takes ncclSend away, "-DNO_REGISTER"
// ncclCommRegister.
func Build(dir string, flags ...string) (string, error) {
	path := filepath.Join(dir, "libnccl.so.2")
	for _, name := range []string{"fake.c", "fake.h"} {
		text, err := sources.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	args := append([]string{"-std=c99", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC", "-o", path,
		filepath.Join(dir, "fake.c")}, flags...)
	if text, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc fake.c: %w\n%s", err, text)
	}
	return path, nil
}

// Install makes a library that was built run here.
func Install(path string) error {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if why := C.install(p); why != nil {
		return errors.New(C.GoString(why))
	}
	return nil
}

// KernelName is the kernel that runs what NCCL would; drivers need it: see Kernels.
const KernelName = "nccltest"

// Kernels returns the kernels that a driver in memory needs here.
func Kernels() map[string]cudatest.Kernel { return map[string]cudatest.Kernel{KernelName: kernel} }

// Made returns the number of communicators of NCCL that were made so far.
func Made() int { return int(made.Load()) }

// Break makes the communicators of one rank tell this result from now on, as NCCL's asynchronous errors do; 0: none.
func Break(rank, result int, words string) {
	machine.Lock()
	defer machine.Unlock()
	machine.broken, machine.result = rank, result
	machine.words = C.CString(words) // few and short; the library may have it at any time
}

// Budgets returns, and forgets, the most blocks of a kernel (maxCTAs) that each communicator of NCCL was made with,
// parents and children.
func Budgets() []int {
	machine.Lock()
	defer machine.Unlock()
	list := machine.budgets
	machine.budgets = nil
	return list
}

var made atomic.Int64

var machine struct {
	sync.Mutex
	worlds  map[string]*world
	comms   map[uint64]*communicator
	next    uint64
	broken  int
	result  int
	words   *C.char
	budgets []int
	held    *held // of HoldAborts; nil: none is held
	busy    *held // likewise, of HoldOperations
}

// held is aborts, or operations, that do not return yet.
type held struct {
	begun, end   chan struct{}
	begin, letGo func()
}

// HoldAborts keeps ncclCommAbort from returning to the last of a rank's communicators until release is called. begun is
// closed when the first is held.
func HoldAborts() (begun <-chan struct{}, release func()) { return hold(&machine.held) }

// HoldOperations keeps operations from returning until their communicator is aborted, as those of NCCL that connect to
// ranks which do not come, or until release is called: then they fail. begun is closed when the first is held.
func HoldOperations() (begun <-chan struct{}, release func()) { return hold(&machine.busy) }

func hold(in **held) (begun <-chan struct{}, release func()) {
	h := &held{begun: make(chan struct{}), end: make(chan struct{})}
	h.begin, h.letGo = sync.OnceFunc(func() { close(h.begun) }), sync.OnceFunc(func() { close(h.end) })
	set := func(h *held) {
		machine.Lock()
		defer machine.Unlock()
		*in = h
	}
	set(h)
	return h.begun, func() {
		set(nil)
		h.letGo()
	}
}

// world is a communicator of NCCL, of all its ranks.
type world struct {
	size   int
	mu     sync.Mutex
	joined int
	rounds map[int]*round
	pipes  map[[2]int]chan message
}

// round is one collective.
type round struct {
	ops     []C.fake_op
	known   []bool // by rank: its memory is registered
	scalars []float64
	arrived int
	full    chan struct{}
	read    int
	over    chan struct{}
	data    [][]byte // of ranks in processes of their own
}

type message struct {
	data []byte
	done chan struct{}
}

// communicator is one rank's.
type communicator struct {
	world    *world
	rank     int
	driver   *cudatest.Driver
	ctx      cuda.Context
	module   cuda.Module
	function cuda.Function
	stopped  chan struct{}
	stop     func()  // closes stopped
	apart    *member // nil: all ranks are of this process
	number   int     // of collectives that have run

	// Under machine's lock.
	handles int    // of the parent and, once it is split off, of the child, which share everything
	child   uint64 // that operations go to
	busy    bool   // the next look finds it in progress
	scalars []float64
	ops     int // with a scalar, that were made and not destroyed
	batches []batch
	known   map[uint64]*registered // by handle
}

// batch is the calls of one group, and which of their memory was registered, by operation.
type batch struct {
	ops  []C.fake_op
	uses []use
}

func lookup(c C.uint64_t) *communicator {
	machine.Lock()
	defer machine.Unlock()
	return machine.comms[uint64(c)]
}

//export goName
func goName(id *C.char) C.int {
	machine.Lock()
	defer machine.Unlock()
	machine.next++
	name := fmt.Sprintf("world %d", machine.next)
	if apart.Load() {
		var err error
		if name, err = newBoard(); err != nil {
			return 2
		}
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(id)), 128), name)
	return 0
}

//export goBegin
func goBegin(id *C.char, rank, size, maxCTAs C.int, comm *C.uint64_t) C.int {
	machine.Lock()
	defer machine.Unlock()
	name := C.GoString(id)
	w := machine.worlds[name]
	if w == nil {
		w = &world{size: int(size), rounds: map[int]*round{}, pipes: map[[2]int]chan message{}}
		for from := range w.size {
			for to := range w.size {
				w.pipes[[2]int{from, to}] = make(chan message)
			}
		}
		if machine.worlds == nil {
			machine.worlds, machine.comms = map[string]*world{}, map[uint64]*communicator{}
		}
		machine.worlds[name] = w
	}
	c := &communicator{world: w, rank: int(rank), driver: cudatest.Current(), stopped: make(chan struct{}),
		known: map[uint64]*registered{}}
	c.handles, c.stop = 1, sync.OnceFunc(func() { close(c.stopped) })
	if c.driver == nil {
		return 1 // no device is current on this thread
	}
	var err error
	if c.ctx, err = c.driver.Retain(0); err == nil { // any device: a rank's driver is its own
		if c.module, err = c.driver.LoadModule(c.ctx, []byte{1}); err == nil {
			c.function, err = c.driver.Function(c.ctx, c.module, KernelName, 0)
		}
	}
	if err != nil {
		return 1
	}
	c.apart = join(name, c.rank, w.size, c.stopped)
	w.mu.Lock()
	w.joined++
	w.mu.Unlock()
	machine.next++
	machine.comms[machine.next] = c
	machine.budgets = append(machine.budgets, int(maxCTAs))
	*comm = C.uint64_t(machine.next)
	made.Add(1)
	return 7
}

//export goState
func goState(comm C.uint64_t) C.int {
	c := lookup(comm)
	if c == nil {
		return 4
	}
	machine.Lock()
	defer machine.Unlock()
	if c.busy {
		c.busy = false
		return 7
	}
	if machine.result != 0 && machine.broken == c.rank {
		return C.int(machine.result)
	}
	if c.apart != nil {
		return c.apart.state()
	}
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	if c.world.joined < c.world.size {
		return 7
	}
	return 0
}

//export goWords
func goWords(C.uint64_t) *C.char {
	machine.Lock()
	defer machine.Unlock()
	return machine.words
}

//export goEnd
func goEnd(comm C.uint64_t, abort C.int) C.int {
	c := lookup(comm)
	if c == nil {
		return 4
	}
	machine.Lock()
	c.current("destroyed or aborted")
	delete(machine.comms, uint64(comm))
	c.handles--
	last := c.handles == 0
	if abort == 0 && c.ops > 0 {
		violate("rank %d: %d reduction ops are left when the communicator is destroyed", c.rank, c.ops)
	}
	if abort == 0 && len(c.known) > 0 {
		violate("rank %d: %d registrations are left when the communicator is destroyed", c.rank, len(c.known))
	}
	h := machine.held
	machine.Unlock()
	if h != nil && abort != 0 && last {
		h.begin()
		<-h.end
	}
	if abort != 0 || last {
		c.stop()
	}
	if !last {
		return 0
	}
	if errors.Join(c.driver.UnloadModule(c.ctx, c.module), c.driver.Release(0)) != nil {
		return 1
	}
	return 0
}

//export goScalar
func goScalar(comm, bits C.uint64_t, dtype C.int) C.int {
	c := lookup(comm)
	machine.Lock()
	defer machine.Unlock()
	c.ops++
	c.scalars = append(c.scalars, cudaipctest.Decode(plugin.DType(dtype), uint64(bits)))
	return C.int(100 + len(c.scalars) - 1)
}

//export goUnscalar
func goUnscalar(comm C.uint64_t, op C.int) C.int {
	c := lookup(comm)
	machine.Lock()
	defer machine.Unlock()
	if c == nil || int(op) >= 100+len(c.scalars) {
		violate("reduction op %d is destroyed, which no communicator has", int(op))
		return 4
	}
	c.ops--
	return 0
}

//export goRun
func goRun(ops *C.fake_op, count C.int) C.int {
	list := append([]C.fake_op(nil), unsafe.Slice(ops, int(count))...)
	c := lookup(list[0].comm)
	if c == nil {
		return 4
	}
	if state := goState(list[0].comm); state != 0 {
		return state // as NCCL's calls do once its asynchronous error is set
	}
	called := batch{list, c.uses(list)}
	machine.Lock()
	h := machine.busy
	machine.Unlock()
	if h != nil {
		h.begin()
		select {
		case <-c.stopped:
		case <-h.end:
		}
		return 2
	}
	machine.Lock()
	if uint64(list[0].comm) != c.child {
		violate("rank %d: an operation on the parent", c.rank)
	}
	c.batches = append(c.batches, called)
	number := uint64(len(c.batches) - 1)
	machine.Unlock()
	l := cuda.Launch{Function: c.function, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Bytes: 16}
	*(*[2]uint64)(unsafe.Pointer(&l.Params[0])) = [2]uint64{uint64(list[0].comm), number}
	if _, err := c.driver.LaunchKernels(c.ctx, cuda.Stream(list[0].stream), []cuda.Launch{l}); err != nil {
		return 1
	}
	if os.Getenv("NCCL_COMM_BLOCKING") == "0" { // then all communicators are non-blocking
		machine.Lock()
		c.busy = true
		machine.Unlock()
		return 7
	}
	return 0
}

// kernel runs what was called as one group.
func kernel(g cudatest.Grid) {
	p := *(*[2]uint64)(unsafe.Pointer(&g.Launch.Params[0]))
	c := lookup(C.uint64_t(p[0]))
	if c == nil {
		return // aborted
	}
	var messages sync.WaitGroup
	machine.Lock()
	b := c.batches[p[1]]
	machine.Unlock()
	c.stillKnown(b)
	for i, op := range b.ops {
		if (op.kind == C.FAKE_SEND || op.kind == C.FAKE_RECV) && c.apart != nil {
			messages.Go(c.apart.message(c.rank, op, g.Done))
		} else if op.kind == C.FAKE_SEND || op.kind == C.FAKE_RECV {
			messages.Go(func() { c.message(op, g.Done) })
		} else if !c.collective(op, b.uses[i].all, g.Done) {
			break
		}
	}
	messages.Wait()
}

func memory(at C.uint64_t, bytes int64) []byte {
	if bytes == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), bytes)
}

// message sends or receives one.
func (c *communicator) message(op C.fake_op, closed <-chan struct{}) {
	bytes := int64(op.count) * plugin.DType(op.dtype).Bytes()
	if op.kind == C.FAKE_SEND {
		m := message{memory(op.send, bytes), make(chan struct{})}
		select {
		case c.world.pipes[[2]int{c.rank, int(op.root)}] <- m:
		case <-c.stopped:
			return
		case <-closed:
			return
		}
		select {
		case <-m.done:
		case <-c.stopped:
		case <-closed:
		}
		return
	}
	select {
	case m := <-c.world.pipes[[2]int{int(op.root), c.rank}]:
		if len(m.data) == int(bytes) { // else neither end ends, as with NCCL
			copy(memory(op.recv, bytes), m.data)
			close(m.done)
		}
	case <-c.stopped:
	case <-closed:
	}
}
