package process

import "time"

// stopPeriod is how long the world may stand still.
const stopPeriod = 250 * time.Millisecond

// boundStops bounds how long the garbage collector can keep a process standing still, by a timer that is due again and
// again. Calling it once is enough.
//
// Since Go 1.26 a goroutine can enter a system call unseen by the thread that stops the world: it looks whether the
// world is being stopped, is interrupted by the kernel, and marks itself as in a system call only after that thread has
// looked at it. The world then waits until the call ends or Go's monitor takes the processor away; and the monitor,
// while the world is being stopped, sleeps until the process's next timer is due, or for a minute (reentersyscall,
// stopTheWorldWithSema and sysmon in runtime/proc.go). A process with a communicator has timers enough. One that only
// waits for calls, as a plugin does, has none, and to its host it would be stuck.
func boundStops() { time.AfterFunc(stopPeriod, boundStops) }
