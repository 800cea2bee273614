package bootstrap

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// endedProcess returns a process that has ended: this one's number was another's before.
func endedProcess(t *testing.T) processID {
	p := identify(os.Getpid())
	p.start += "1"
	require.True(t, p.ended())
	return p
}

// A number means another process, or none, on another host and in another namespace of pids, so nothing is known of the
// process there.
func TestOnlyProcessesOfThisSystemHaveEnded(t *testing.T) {
	for name, change := range map[string]func(*processID){
		"another host":      func(p *processID) { p.boot = "another" },
		"unknown host":      func(p *processID) { p.boot = "" },
		"another namespace": func(p *processID) { p.namespace = "pid:[1]" },
		"unknown namespace": func(p *processID) { p.namespace = "" },
		"unknown start":     func(p *processID) { p.start = "" },
		"pid 0":             func(p *processID) { p.pid = 0 },
		"a negative pid":    func(p *processID) { p.pid = -p.pid },
	} {
		p := endedProcess(t)
		change(&p)
		require.False(t, p.ended(), name)
		called := make(chan struct{}, 1)
		require.Nil(t, watchProcess(p, func() { called <- struct{}{} }), name)
		require.Empty(t, called, name)
	}
}

// A rank takes a store from a file that a running process of this user has left, or one of which nothing is known;
// another file may become one, except where that is not a file of a rendezvous at all.
func TestRanksReadTheFileOfARunningJob(t *testing.T) {
	id, self := sampleID(), identify(os.Getpid())
	elsewhere := endedProcess(t)
	elsewhere.boot = "another"
	good := string(encodeFile(id, self))
	for name, test := range map[string]struct {
		content string
		want    string
	}{
		"this process":   {good, ""},
		"another host's": {string(encodeFile(id, elsewhere)), ""},
		"nothing known":  {string(encodeFile(id, processID{pid: 1})), ""},
		"has ended":      {string(encodeFile(id, endedProcess(t))), "which has ended"},
		"cut off":        {good[:len(good)-1], "not a rendezvous file: wrong header or length"},
		"another kind":   {"1" + good, "not a rendezvous file: wrong header or length"},
		"no end":         {strings.Replace(good, "\nend\n", "\nEnd\n", 1), "not a rendezvous file: wrong header or length"},
		"too long":       {strings.Replace(good, "end", strings.Repeat("end", maxFileBytes), 1), "wrong header"},
		"no id":          {strings.Replace(good, "\nid ", "\nId ", 1), "the id is missing"},
		"another id":     {strings.Replace(good, "\nid ", "\nid x", 1), "not a rendezvous file"},
		"no process":     {strings.Replace(good, "\nprocess ", "\nprogram ", 1), "the process is missing"},
		"a word more":    {strings.Replace(good, "\nprocess ", "\nprocess x ", 1), "the process is missing"},
		"a wrong pid":    {string(encodeFile(id, processID{boot: "b", pid: -7})), "malformed pid"},
	} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(test.content), 0o600))
		j := &joiner{meeting: meeting{file: path, once: true}}
		err := j.readFile()
		if test.want != "" {
			require.ErrorContains(t, err, test.want, name)
			require.Equal(t, plugin.Protocol, plugin.CodeOf(err), "%s: it may still come", name)
			require.Zero(t, j.meeting.secret, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, id.secret, j.meeting.secret, name)
		require.False(t, j.meeting.once, "%s: a refusal is not the last word", name)
	}
	j := &joiner{meeting: meeting{file: filepath.Join(t.TempDir(), "none")}}
	require.Equal(t, plugin.Protocol, plugin.CodeOf(j.readFile()))
	j.meeting.file = t.TempDir()
	require.Equal(t, plugin.InvalidArgument, plugin.CodeOf(j.readFile()), "a folder becomes no file")
}

// A file is in use while the process that has left it runs, also where nothing is known of it but its number, as
// without /proc.
func TestAFileIsInUseWhileItsProcessRuns(t *testing.T) {
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	known, unknown := identify(child.Process.Pid), processID{pid: child.Process.Pid}
	self, selfUnknown := identify(os.Getpid()), processID{pid: os.Getpid()}
	require.True(t, known.inUseBeside(self))
	require.True(t, unknown.inUseBeside(selfUnknown))
	require.False(t, self.inUseBeside(self))
	require.False(t, selfUnknown.inUseBeside(selfUnknown))
	elsewhere := known
	elsewhere.boot = "another"
	require.False(t, elsewhere.inUseBeside(self))
	require.NoError(t, input.Close())
	require.NoError(t, child.Wait())
	require.False(t, known.inUseBeside(self))
	require.False(t, unknown.inUseBeside(selfUnknown))
}

// A rank keeps the latest ends of exchanges for a successor of the store: so many of each kind, each of them up to a
// length, and of one tag the last, where the store's word counts more than this rank's own.
func TestEndsOfExchangesThatAreKept(t *testing.T) {
	failed := rankError(plugin.Timeout, 1, "too late")
	g := &Group{}
	for i := range maxRecent + 3 {
		g.keep(recent{seq: uint64(i + 1), tag: "result", data: make([]byte, maxRecentBytes+i-maxRecent)})
	}
	require.Len(t, g.recent, maxRecent)
	for i, r := range g.recent {
		require.Equal(t, uint64(4+i), r.seq, "the latest stay")
		long := int(r.seq)-1 > maxRecent
		require.Equal(t, long, r.lost, "number %d", r.seq)
		require.Equal(t, long, r.data == nil, "number %d", r.seq)
	}
	require.EqualValues(t, maxRecent+3, g.heard)

	for i := range maxFailed + 3 {
		g.keep(recent{seq: uint64(100 + i), tag: strings.Repeat("t", i+1), err: failed})
	}
	require.Len(t, g.failures, maxFailed)
	require.EqualValues(t, 103, g.failures[0].seq)
	require.Len(t, g.recent, maxRecent, "each kind by itself")

	for name, test := range map[string]struct {
		ends []recent
		want []uint64 // numbers of the failures that stay
	}{
		"the store's word counts":    {[]recent{{tag: "x", err: failed}, {seq: 5, tag: "x", err: failed}}, []uint64{5}},
		"a result is such a word":    {[]recent{{tag: "x", err: failed}, {seq: 5, tag: "x"}}, nil},
		"this rank's own stays":      {[]recent{{tag: "x", err: failed}, {seq: 5, tag: "y", err: failed}}, []uint64{0, 5}},
		"the latest of a tag":        {[]recent{{seq: 4, tag: "x", err: failed}, {seq: 5, tag: "x"}}, nil},
		"its own beside the store's": {[]recent{{seq: 4, tag: "x", err: failed}, {tag: "x", err: failed}}, []uint64{4, 0}},
		"its own once":               {[]recent{{tag: "x", err: failed}, {tag: "x", err: failed}}, []uint64{0}},
	} {
		g := &Group{}
		for _, r := range test.ends {
			g.keep(r)
		}
		var numbers []uint64
		for _, f := range g.failures {
			numbers = append(numbers, f.seq)
		}
		require.Equal(t, test.want, numbers, name)
	}
}
