package process

import (
	"bytes"
	"os"
	"strconv"
)

// processState is the letter of a process in /proc (R, S, D, T, Z …), or 0.
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
