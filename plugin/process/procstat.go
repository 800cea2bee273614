package process

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// processState returns the letter of a process in /proc (R, S, D, T, Z …), or 0.
func processState(pid int) byte {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return stateOf(stat)
}

// stateOf finds the state behind the name, which may hold anything, a closing
// parenthesis included.
func stateOf(stat []byte) byte {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 || i+2 >= len(stat) {
		return 0
	}
	return stat[i+2]
}

// allAsleep reports whether every thread of a process is in interruptible sleep,
// or has ended.
func allAsleep(pid int) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, err := os.ReadDir(dir)
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(dir + "/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		switch stateOf(stat) {
		case 'S', 'I', 'Z', 'X':
		default:
			return false
		}
	}
	return true
}

// tick is the unit of times in /proc, which Linux fixes for user programs.
const tick = 10 * time.Millisecond

// processorTime returns the processor time that all threads of a process have used, or 0.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	return timeOf(stat)
}

// timeOf adds user and system time, fields 14 and 15 of a stat file.
func timeOf(stat []byte) time.Duration {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0
	}
	fields := strings.Fields(string(stat[i+1:])) // from field 3 on
	if len(fields) < 13 {
		return 0
	}
	user, errUser := strconv.ParseUint(fields[11], 10, 40)
	system, errSystem := strconv.ParseUint(fields[12], 10, 40)
	if errUser != nil || errSystem != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}
