package process

import (
	"context"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

func benchmarkClient(b *testing.B) *Client {
	c, err := Start(context.Background(), testConfig("probe"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// One call to the plugin and back; every size is a question of its own.
func BenchmarkSupportsAsked(b *testing.B) {
	t := benchmarkClient(b).Transport()
	r := allReduce
	for b.Loop() {
		r.Bytes++
		if len(t.Supports(r).Algorithms) == 0 {
			b.Fatal(t.Supports(r).Reason)
		}
	}
}

func BenchmarkSupportsKnown(b *testing.B) {
	t := benchmarkClient(b).Transport()
	for b.Loop() {
		t.Supports(allReduce)
	}
}

// An endpoint: two regions with their descriptors, and an image.
func BenchmarkOpenClose(b *testing.B) {
	t := benchmarkClient(b).Transport()
	for b.Loop() {
		e, err := t.Open(context.Background(), plugin.OpenConfig{World: 1, Device: -1})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	e, err := benchmarkClient(b).Transport().Open(context.Background(), plugin.OpenConfig{World: 1, Device: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	for b.Loop() {
		if _, err := e.Prepare(context.Background(), allReduce, probe.Algorithm); err != nil {
			b.Fatal(err)
		}
	}
}

// Starting a process, up to its first reply, and ending it.
func BenchmarkStartClose(b *testing.B) {
	for b.Loop() {
		c, err := Start(context.Background(), testConfig("probe"))
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
