package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// marker is set in the environment of workers to "rank/world". It does not
// start with SHUNT_, which is the prefix of product options.
const marker = "SHUNTPOOL_WORKER"

const (
	requestFD  = 3
	responseFD = 4
)

// Worker is one rank, as a handler sees it.
type Worker struct {
	Rank, World int
	// Rand is seeded from the case's seed and the rank before every case.
	Rand *rand.Rand
	// State is the handlers' own, kept from case to case while the process
	// lives. What a case must not see of it, the handler resets first.
	State any
}

// Handler runs one case on one rank. The context ends at the case's deadline.
// An error fails the case; one made by Fatal also ends the worker's life.
type Handler func(ctx context.Context, w *Worker, payload []byte) ([]byte, error)

var handlers = map[string]Handler{}

// Handle registers what workers do for requests of the given name. It is meant
// for init functions and panics when the name is taken or too long.
func Handle(name string, h Handler) {
	if _, taken := handlers[name]; taken || name == "" || len(name) > MaxName {
		panic(fmt.Sprintf("pool: handler name %q is taken, empty or too long", name))
	}
	handlers[name] = h
}

type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// Fatal marks an error after which the worker must not be used again, because
// what it holds is broken. The pool starts anew for the next case.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return fatalError{err}
}

// Main turns the process into a worker if a pool started it, and then never
// returns. Otherwise it does nothing. Call it first in main or TestMain.
func Main() {
	text, ok := os.LookupEnv(marker)
	if !ok {
		return
	}
	rank, world, err := parseMarker(text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "pool worker: %v\n", err)
		os.Exit(2)
	}
	if err := os.Unsetenv(marker); err != nil { // a child of this worker is no worker
		fmt.Fprintf(os.Stderr, "pool worker: %v\n", err)
		os.Exit(2)
	}
	tick()
	in, out := os.NewFile(requestFD, "requests"), os.NewFile(responseFD, "responses")
	w := &Worker{Rank: rank, World: world}
	if err := serve(w, in, out); err != nil {
		fmt.Fprintf(os.Stderr, "pool worker %d: %v\n", rank, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// tick keeps a timer of the process due soon. Without one Go may take a minute to stop the world for a garbage
// collection: plugin/process/stopworld.go says why.
func tick() { time.AfterFunc(time.Second/4, tick) }

func parseMarker(text string) (rank, world int, err error) {
	a, b, ok := strings.Cut(text, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%s=%q is not rank/world", marker, text)
	}
	if rank, err = strconv.Atoi(a); err != nil {
		return 0, 0, fmt.Errorf("%s: rank: %w", marker, err)
	}
	if world, err = strconv.Atoi(b); err != nil {
		return 0, 0, fmt.Errorf("%s: world: %w", marker, err)
	}
	if world < 1 || rank < 0 || rank >= world {
		return 0, 0, fmt.Errorf("%s: rank %d of world %d", marker, rank, world)
	}
	return rank, world, nil
}

// serve handles requests until the pool closes its end. Reading in a goroutine
// of its own makes the end of the pool visible while a case is running, so
// that a stuck worker does not outlive the process that started it.
func serve(w *Worker, in io.Reader, out io.Writer) error {
	type arrival struct {
		f   *frame
		err error
	}
	arrivals := make(chan arrival)
	busy := make(chan struct{}, 1)
	go func() {
		for {
			f, err := readFrame(in)
			if err != nil && len(busy) > 0 {
				fmt.Fprintf(os.Stderr, "pool worker %d: the pool is gone in the middle of a case\n", w.Rank)
				os.Exit(3)
			}
			arrivals <- arrival{f, err}
			if err != nil {
				return
			}
		}
	}()
	for a := range arrivals {
		if errors.Is(a.err, io.EOF) {
			return nil
		}
		if a.err != nil {
			return a.err
		}
		busy <- struct{}{}
		reply := w.run(a.f)
		<-busy
		if err := writeFrame(out, reply); err != nil {
			return err
		}
	}
	return nil
}

func (w *Worker) run(f *frame) (reply *frame) {
	start := time.Now()
	reply = &frame{Kind: frameResponse, Sequence: f.Sequence}
	ctx, cancel := context.WithTimeout(context.Background(), f.Time)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			reply.Payload, reply.Flags = nil, flagFatal|flagError
			reply.Error = fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
		reply.Time = time.Since(start)
	}()
	h, ok := handlers[f.Name]
	if !ok {
		reply.Flags, reply.Error = flagError, fmt.Sprintf("no handler named %q in this binary", f.Name)
		return reply
	}
	w.Rand = rand.New(rand.NewPCG(f.Seed, uint64(w.Rank)))
	payload, err := h(ctx, w, f.Payload)
	if err == nil && len(payload) > MaxPayload {
		payload, err = nil, fmt.Errorf("reply of %d bytes, at most %d", len(payload), MaxPayload)
	}
	reply.Payload = payload
	if err != nil {
		reply.Flags |= flagError
		reply.Error = err.Error()
		var fatal fatalError
		if errors.As(err, &fatal) {
			reply.Flags |= flagFatal
		}
	}
	return reply
}
