package bench

// Work beside which operations are timed: kernels such as an application has,
// on a stream of their own. They are queued before a batch, enough to outlast
// it, and each ends by itself after a bounded time: an operation that has to
// wait for one of them, or for all, is late but never stuck.

const (
	kernelNanoseconds = 100e3 // of one of these kernels, at least
	mostKernels       = 512   // queued for one batch; drivers take about a thousand
	queueAhead        = 1000  // microseconds that it takes the ranks to meet and begin
)

// occupy queues work for a batch, which took idle microseconds with nothing
// beside it. The samples so far tell how long it takes beside work. However late
// operations are, the work has an end that does not depend on it.
func (d *deviceSpace) occupy(idle float64, samples []float64, operations int) error {
	expected := idle
	if n := len(samples); n > 0 {
		expected = samples[n-1] * float64(operations)
	}
	expected = min(1.5*expected, 20*idle+10*queueAhead) + queueAhead
	each := max(kernelNanoseconds, 1e3*expected/mostKernels)
	kernels := int(1e3*expected/each) + 1
	if err := d.driver.Record(d.ctx, d.occupied, d.side); err != nil {
		return err
	}
	held := max(d.sms*d.busy/100, 1)
	for range kernels {
		// A multiprocessor holds two blocks of 1024 threads.
		if err := d.launch(d.side, busyKernel, uint32(2*d.sms), 1024, uint64(each), uint64(held),
			uint64(d.counter)+8); err != nil {
			return err
		}
	}
	return d.driver.Record(d.ctx, d.vacant, d.side)
}

// covered waits for the work's end, and reports whether the batch that was timed
// last ran beside it from its beginning to its end.
func (d *deviceSpace) covered() (bool, error) {
	if err := d.driver.SynchronizeStream(d.ctx, d.side); err != nil {
		return false, err
	}
	before, err := d.driver.Elapsed(d.ctx, d.occupied, d.start)
	if err != nil {
		return false, err
	}
	after, err := d.driver.Elapsed(d.ctx, d.stop, d.vacant)
	return before >= 0 && after >= 0, err
}
