package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// lives makes communicators and windows, uses them and closes them. The rank, and the process of a plugin, then hold
// what they held before: a job that does so for days must not run out of descriptors, threads or memory.
func lives(ctx context.Context, s *stage) error {
	const warmUp = 2 // what is made once and kept
	number := 0
	row := func(lives int) ([]held, error) {
		for range lives {
			if err := s.life(ctx, number); err != nil {
				return nil, fmt.Errorf("life %d: %w", number, err)
			}
			number++
		}
		return s.held(ctx)
	}
	before, err := row(warmUp)
	if err != nil {
		return err
	}
	left, err := s.leftBehind(ctx, func() ([]string, error) {
		now, err := row(s.c.Repeat)
		if err != nil {
			return nil, err
		}
		var grown []string
		for i := range now {
			grown = append(grown, now[i].since(before[i], s.c.Repeat)...)
		}
		before = now
		return grown, nil
	})
	if err != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("%d communicators were made, used and closed, time after time, and left behind %s", s.c.Repeat,
		strings.Join(left, ", "))
}

// leftBehind returns what the last of some rows has left behind on this rank: what is no leak ends a little later, or
// grows in one row and then no more, and a device has other users. No row follows one that left nothing on any rank.
func (s *stage) leftBehind(ctx context.Context, row func() ([]string, error)) (left []string, err error) {
	const most = 4
	for range most {
		if left, err = row(); err != nil {
			return nil, err
		}
		verdicts, err := s.comm.Exchange(ctx, []byte{byte(min(len(left), 1))})
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(verdicts, func(v []byte) bool { return v[0] != 0 }) {
			return nil, nil
		}
	}
	return left, nil // nothing where another rank says it
}

// life is that of one communicator: collectives, each with a plan of its own, messages and a window.
func (s *stage) life(ctx context.Context, number int) error {
	sub, err := s.comm.Split(ctx, 0, s.me)
	if err != nil {
		return err
	}
	inner := *s
	inner.comm = sub
	for i, collective := range s.whole() {
		if err = inner.run(i, sub, inner.with(number*100+i, collective, s.c.Count)); err != nil {
			break
		}
	}
	if err == nil {
		err = inner.window(ctx)
	}
	return errors.Join(err, sub.Close())
}

// window makes a window and closes it, where there are some.
func (s *stage) window(ctx context.Context) error {
	w, err := s.newWindow(ctx, 1<<16)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return w.Close()
}

// held counts what a process can leave behind.
type held struct {
	what                 string
	descriptors, threads int
	memory               int64
}

// held measures the rank, and the processes of its plugins. All ranks are at the same place then.
func (s *stage) held(ctx context.Context) ([]held, error) {
	if _, err := s.comm.Exchange(ctx, nil); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	rank, err := heldBy("self", "the rank")
	list := []held{rank}
	for _, t := range s.comm.Transports() {
		if pid := t.PID(); pid != 0 && err == nil {
			var process held
			process, err = heldBy(strconv.Itoa(pid), "the process of "+t.Info.Name)
			list = append(list, process)
		}
	}
	_, exchanged := s.comm.Exchange(ctx, nil) // no rank continues before all have looked
	return list, errors.Join(err, exchanged)
}

func heldBy(pid, what string) (held, error) {
	h := held{what: what}
	descriptors, err := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	if err != nil {
		return h, err
	}
	h.descriptors = len(descriptors)
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return h, err
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		switch name {
		case "Threads":
			h.threads = int(n)
		case "RssAnon", "RssShmem":
			h.memory += n << 10
		}
	}
	return h, nil
}

// Memory that may stay behind: that of the runtimes of languages, which grows with use, and some for each life.
const (
	memoryOnce = 4 << 20
	memoryEach = 256 << 10
)

// since says what there is more than before. Whatever is left behind in each life is there as many times; one or two
// of it are chance. A runtime takes threads that it has to spare first, so half as many more of them are enough.
func (h held) since(before held, lives int) (more []string) {
	if n := h.descriptors - before.descriptors; n >= lives {
		more = append(more, fmt.Sprintf("%d open descriptors of %s", n, h.what))
	}
	if n := h.threads - before.threads; n > lives/2 {
		more = append(more, fmt.Sprintf("%d threads of %s", n, h.what))
	}
	if n := h.memory - before.memory; n >= memoryOnce+memoryEach*int64(lives) {
		more = append(more, fmt.Sprintf("%d KiB of memory of %s", n>>10, h.what))
	}
	return more
}
