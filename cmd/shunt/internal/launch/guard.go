package launch

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard ends what ranks have started if the launcher is killed: the kernel ends the ranks then, but not their children.
// It is a shell, which reads the numbers of groups that began (+) and ended (-), until the launcher is gone. Of a rank
// that starts in the microseconds in which the launcher is killed it may not have read the number. What a lifeline says
// is written after it has.
type guard struct{ to io.WriteCloser }

const guarding = `
groups=
while read -r what group; do
  case $what in
  +) groups="$groups $group " ;;
  *) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 "-$group"; done`

// newGuard starts one. Where there is no shell it does nothing.
func newGuard() *guard {
	cmd := exec.Command("/bin/sh", "-c", guarding)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends the launcher's group does not end it
	to, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return &guard{nopCloser{io.Discard}}
	}
	go func() { _ = cmd.Wait() }()
	return &guard{to}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// began and ended tell of a group. Writing them does not block: the pipe holds more than the lines of all ranks.
func (g *guard) began(group int) { _, _ = fmt.Fprintln(g.to, "+", group) }
func (g *guard) ended(group int) { _, _ = fmt.Fprintln(g.to, "-", group) }

func (g *guard) close() { _ = g.to.Close() }
