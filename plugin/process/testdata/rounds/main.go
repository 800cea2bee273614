// Command rounds prints how long the longest of its garbage collections took, each begun as a goroutine enters a system
// call that does not end before it. With the argument "bounded" the process has the timer of stopworld.go, which the test
// adds to this program.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

const rounds = 200

func main() {
	bounded := len(os.Args) > 1 && os.Args[1] == "bounded"
	if bounded {
		boundStops()
	}
	runtime.GOMAXPROCS(2)
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		panic(err)
	}
	var asked, ready atomic.Int64
	go func() {
		var b [1]byte
		for n := int64(1); ; n++ {
			ready.Store(n)
			for asked.Load() < n {
			}
			for range n % 300 { // another moment in every round
				ready.Load()
			}
			if _, err := syscall.Read(pipe[0], b[:]); err != nil {
				panic(err)
			}
		}
	}()
	var longest time.Duration
	late := 0
	for n := int64(1); n <= rounds; n++ {
		for ready.Load() < n {
			runtime.Gosched()
		}
		asked.Store(n)
		began := time.Now()
		runtime.GC()
		took := time.Since(began)
		longest = max(longest, took)
		if took > stopPeriod/4 {
			late++
		}
		if bounded && late == 10 {
			break // enough of them
		}
		if _, err := syscall.Write(pipe[1], []byte{0}); err != nil {
			panic(err)
		}
	}
	fmt.Println(longest)
}
