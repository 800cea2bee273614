package launch

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard ends what ranks have started if the launcher is killed: the kernel ends the ranks then, but not their children.
// It is a shell, which reads the numbers of groups, each with its rank, that began (+) and ended (-), until the
// launcher is gone. It then kills these groups, and as endMembers what the ranks have put into others. Of a rank that
// starts in the microseconds in which the launcher is killed it may not have read the number. What a lifeline says is
// written after it has.
type guard struct{ to io.WriteCloser }

// guarding has the session of the launcher and the id of the job for arguments.
const guarding = `
session=$1 id=$2 groups=
while read -r what group; do
  case $what in
  +) groups="$groups $group " ;;
  *) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
ranks=
for group in $groups; do
  kill -9 "-${group%:*}"
  ranks="$ranks ${group#*:} "
done
killed= before=none
while [ "$ranks" ] && [ "$killed" != "$before" ]; do
  before=$killed
  for environ in $(grep -lF -e "SHUNT_ID=$id" /proc/[0-9]*/environ); do
    pid=${environ%/environ} pid=${pid#/proc/}
    case $killed in *" $pid "*) continue ;; esac
    read -r line <"/proc/$pid/stat" || continue
    set -- ${line##*) } # state, parent, group, session
    [ "$4" = "$session" ] || continue
    env="
$(tr '\0' '\n' <"$environ")
"
    rank=${env##*"
SHUNT_RANK="}
    case $env in *"
SHUNT_ID=$id
"*) ;; *) continue ;; esac
    case $ranks in *" ${rank%%[!0-9]*} "*) kill -9 "$pid" && killed="$killed $pid " ;; esac
  done
done`

// newGuard starts one. Where there is no shell it does nothing.
func newGuard(id string) *guard {
	session, _ := unix.Getsid(0) // always succeeds
	cmd := exec.Command("/bin/sh", "-c", guarding, "sh", strconv.Itoa(session), id)
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

// began and ended tell of the group of a rank. Writing them does not block: the pipe holds more than the lines of all
// ranks.
func (g *guard) began(group, rank int) { _, _ = fmt.Fprintf(g.to, "+ %d:%d\n", group, rank) }
func (g *guard) ended(group, rank int) { _, _ = fmt.Fprintf(g.to, "- %d:%d\n", group, rank) }

func (g *guard) close() { _ = g.to.Close() }
