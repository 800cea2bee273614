package launch

import (
	"os"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin/noexec"
)

// howToStart says how a program starts that is a file here, but not one that can be executed as it was named.
func howToStart(program string) string {
	switch info, err := os.Stat(program); {
	case err != nil || !info.Mode().IsRegular():
		return ""
	case strings.HasSuffix(program, ".py"):
		return "; start a program in Python as: python3 " + program
	case info.Mode()&0o111 == 0:
		return "; the file is not executable"
	case !strings.Contains(program, "/"):
		return "; name a program of this directory as ./" + program
	}
	if err := noexec.Check(program); err != nil {
		return "; " + err.Error()
	}
	return "; this user may not execute the file"
}

// unbuffered has Python write what a program prints at once, unless the environment says how it is to be. Into a pipe
// it would keep the output back until 8 KiB are together or the program ends well: users would see neither the progress
// of a job nor what a rank printed before it hung or was killed.
func unbuffered(env []string) []string {
	const name = "PYTHONUNBUFFERED="
	if slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name) }) {
		return env
	}
	return append(env, name+"1")
}
