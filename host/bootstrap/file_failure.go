package bootstrap

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank 0 that cannot serve the others leaves its error in the file of a file:// meeting place, in place of an id:
//
//	shunt rendezvous 1
//	failed <time, ns since 1970> <error code> <quoted message>
//	end
//
// The file stays until a rank 0 replaces it. A rank of a later job may read it before that. So it believes only what
// was written after its own process had started, and only once.

// fileFailure is an error that a rank 0 has left in a file.
type fileFailure struct {
	at   time.Time // by the clock of rank 0's host
	code plugin.Code
	text string
}

// mostFailureText bounds the quoted message, so that the file stays within maxFileBytes.
const mostFailureText = 800

func (f fileFailure) encode() []byte {
	text := []rune(f.text)
	quoted := strconv.Quote(f.text)
	for len(quoted) > mostFailureText {
		text = text[:len(text)*9/10]
		quoted = strconv.Quote(string(text) + "…")
	}
	return fmt.Appendf(nil, "%s\nfailed %d %d %s\nend\n", fileHeader, f.at.UnixNano(), f.code, quoted)
}

func decodeFailure(b []byte) (f fileFailure, is bool) {
	lines := strings.Split(string(b), "\n")
	if len(b) > maxFileBytes || len(lines) != 4 || lines[0] != fileHeader || lines[2] != "end" || lines[3] != "" {
		return f, false
	}
	words := strings.SplitN(lines[1], " ", 4)
	if len(words) != 4 || words[0] != "failed" {
		return f, false
	}
	at, errTime := strconv.ParseInt(words[1], 10, 64)
	code, errCode := strconv.ParseInt(words[2], 10, 32)
	text, errText := strconv.Unquote(words[3])
	if errTime != nil || errCode != nil || errText != nil || text == "" ||
		code <= int64(plugin.OK) || code > int64(plugin.Internal) {
		return f, false
	}
	return fileFailure{time.Unix(0, at), plugin.Code(code), text}, true
}

// leaveFailure writes why rank 0 cannot serve the others. If it cannot, they learn nothing, as without it.
func leaveFailure(path string, reason *plugin.Error, logger *slog.Logger) {
	err := writeFile(path, fileFailure{time.Now(), reason.Code, reason.Message}.encode())
	if err != nil {
		logger.Warn("rendezvous: the other ranks are not told that rank 0 cannot serve them", "path", path, "reason", err)
	}
}

// told holds the failures that ranks of this process have returned: a program may try again at the same place.
var told struct {
	sync.Mutex
	failures map[reader]int64
}

type reader struct {
	path string
	rank int
}

// failedToServe returns the error that rank 0 has left if it is about this job, and else one that another attempt may
// mend.
func (j *joiner) failedToServe(f fileFailure) error {
	told.Lock()
	defer told.Unlock()
	by := reader{j.meeting.file, j.config.Rank}
	if f.at.After(processStart()) && told.failures[by] != f.at.UnixNano() {
		if told.failures == nil {
			told.failures = map[reader]int64{}
		}
		told.failures[by] = f.at.UnixNano()
		code := f.code
		if code == plugin.Protocol { // which another attempt would mend
			code = plugin.System
		}
		return rankError(code, 0, "%s", f.text)
	}
	return plugin.Errorf(plugin.Protocol, "the file was left at %s by a rank 0 that failed: %s",
		f.at.UTC().Format(time.RFC3339), f.text)
}

// loaded is when this process has loaded Shunt.
var loaded = time.Now()

// processStart returns when this process started, to a hundredth of a second, or where /proc does not tell, when it
// loaded Shunt.
var processStart = sync.OnceValue(func() time.Time {
	ticks, err := strconv.ParseInt(identify(os.Getpid()).start, 10, 64)
	var up unix.Timespec
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) != nil {
		return loaded
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all that Go runs on
	return time.Now().Add(time.Duration(ticks)*tick - time.Duration(up.Nano()))
})
