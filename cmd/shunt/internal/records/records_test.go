package records

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// headOf returns the head of a rank's report, in a world of 1000, where it has called so
// many collectives.
func headOf(rank int, number uint64, collective, state string) report.Head {
	h := report.Head{
		Communicator: "world", Job: "j", Rank: rank, World: 1000, PID: 5000 + rank, Host: "a", Code: "timeout",
		Failure: fmt.Sprintf("rank %d got no response", rank),
	}
	if number > 0 {
		h.Last = &report.Call{Number: number, Collective: collective, State: state}
	}
	return h
}

func text(heads []report.Head) string { return Summary{Communicators: Summarize(heads)}.String() }

func TestManyRanksAreAShortText(t *testing.T) {
	var heads []report.Head
	for rank := range 1000 {
		switch {
		case rank == 17 || rank%100 == 3: // no file
		case rank == 500:
			heads = append(heads, headOf(rank, 41, "broadcast", report.Ended))
		case rank == 501:
			heads = append(heads, headOf(rank, 0, "", ""))
		case rank == 502:
			heads = append(heads, headOf(rank, 42, "recv", report.Called))
		default:
			heads = append(heads, headOf(rank, 42, "all_reduce", report.Called))
		}
	}
	for rank := 900; rank < 999; rank++ { // many say one thing
		heads[rank-11].Failure = "rank 17 did not come"
	}
	require.Equal(t, `communicator world of 1000 failed: timeout: rank 17 did not come
  called nothing: rank 501 (pid 5501, host a)  <- 42 BEHIND
  done with #41 broadcast: rank 500 (pid 5500, host a)  <- 1 BEHIND
  in #42 all_reduce: ranks 0-2, 4-16, 18-102, 104-202, 204-302, 304-402, 404-499, 504-602 and 393 more
  in recv after #42: rank 502
  no file: ranks 3, 17, 103, 203, 303, 403, 503, 603 and 3 more (ended or stopped without writing one, or closed before the failure)
`, text(heads))
}

// A rank whose message waits for another's, and for none in a circle, is not the one to look at.
func TestWhoIsBehindWithMessages(t *testing.T) {
	with := func(rank int, collective string, peer int) report.Head {
		h := headOf(rank, 5, collective, report.Called)
		h.World, h.Failure, h.Last.Peer = 8, "because", &peer
		return h
	}
	other := func(rank int, number uint64, state string) report.Head {
		h := headOf(rank, number, "all_reduce", state)
		h.World, h.Failure = 8, "because"
		return h
	}
	require.Equal(t, `communicator world of 8 failed: timeout: because
  in send to rank 2 after #5: rank 1
  done with #5 all_reduce: rank 2 (pid 5002, host a)  <- 1 BEHIND
  in recv from rank 1 after #5: ranks 3-4
  in recv from rank 6 after #5: rank 5
  in send to rank 0 after #5: rank 7 (pid 5007, host a)  <- 1 BEHIND
  in #6 all_reduce: rank 0
  no file: rank 6 (ended or stopped without writing one, or closed before the failure)
`, text([]report.Head{other(0, 6, report.Called), with(1, "send", 2), other(2, 5, report.Ended), with(3, "recv", 1),
		with(4, "recv", 1), with(5, "recv", 6), with(7, "send", 0)}))
	require.Contains(t, text([]report.Head{other(0, 6, report.Called), with(1, "send", 2), with(2, "send", 1)}),
		"in send to rank 2 after #5: rank 1 (pid 5001, host a)  <- 1 BEHIND\n")
}

func TestOneOfEachKind(t *testing.T) {
	var heads []report.Head
	for rank := range 12 {
		h := headOf(rank, uint64(rank+1), "all_reduce", report.Enqueued)
		h.World, h.Failure = 12, "because"
		h.Code = []string{"timeout", "aborted", "peer_died", "mismatch", "", "timeout"}[rank%6]
		if h.Code == "" {
			h.Failure = ""
		}
		heads = append(heads, h)
	}
	lines := strings.Split(text(heads), "\n")
	require.Equal(t, []string{
		"communicator world of 12 failed: timeout: because",
		"  but ranks 1, 7 failed: aborted: because",
		"  but ranks 2, 8 failed: peer_died: because",
		"  and there are 2 more causes",
		"  enqueued #1 all_reduce: rank 0 (pid 5000, host a)  <- 11 BEHIND",
	}, lines[:5])
	require.Equal(t, "  in 4 other calls, the last #12: ranks 8-11", lines[12])
	require.Len(t, lines, 14)
	require.Equal(t, "communicator world of 1000 had not failed\n  done with send after #3: rank 7\n  no file: ranks 0-6, 8-999 (ended or stopped without writing one, or closed before the failure)\n",
		text([]report.Head{{Communicator: "world", Rank: 7, World: 1000,
			Last: &report.Call{Number: 3, Collective: "send", State: report.Ended}}}))
}

func TestWhereSomebodyWaitsComesFirst(t *testing.T) {
	var heads []report.Head
	for i := range 20 {
		h := headOf(0, 3, "barrier", report.Ended)
		h.Communicator, h.World = fmt.Sprintf("world/%02d.0", i), 1
		if i == 11 {
			h.Last.State = report.Called
		}
		heads = append(heads, h)
	}
	out := text(heads)
	require.True(t, strings.HasPrefix(out, "communicator world/11.0 of 1 failed: timeout: rank 0 got no response\n  in #3 barrier: rank 0\ncommunicator world/00.0 of 1 "), out)
	require.True(t, strings.HasSuffix(out, "\n12 more communicators failed\n"), out)
}

func TestReading(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := Make("made")
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(dir.Path))
	write := func(path string, h report.Head) {
		require.NoError(t, report.Report{Head: h}.WriteFile(filepath.Join(path, "x")))
		require.NoError(t, os.Rename(filepath.Join(path, "x", h.FileName()), filepath.Join(path, h.FileName())))
		require.NoError(t, os.Remove(filepath.Join(path, "x")))
	}
	empty, err := dir.Read()
	require.NoError(t, err)
	require.Zero(t, empty)
	write("made", headOf(1, 1, "barrier", report.Ended))
	write("made", headOf(2, 1, "barrier", report.Ended))

	_, err = Make("made")
	require.ErrorContains(t, err, "another shunt run writes its records into ")
	dir.Close()
	dir, err = Make("made") // for another job
	require.NoError(t, err)
	write("made", headOf(2, 2, "barrier", report.Ended))
	write("made", headOf(3, 2, "barrier", report.Ended))
	require.NoError(t, os.WriteFile("made/bad.json", []byte("\x1b[31mred"), 0o600))
	require.NoError(t, os.WriteFile("made/.hidden.json", nil, 0o600))
	require.NoError(t, os.WriteFile("made/other.txt", nil, 0o600))
	require.NoError(t, os.Mkdir("made/dir.json", 0o700))
	require.NoError(t, unix.Mkfifo("made/fifo.json", 0o600)) // opening it would take for ever
	require.NoError(t, os.Symlink("/dev/zero", "made/endless.json"))
	s, err := dir.Read()
	require.NoError(t, err)
	require.Len(t, s.Communicators, 1)
	require.Equal(t, []Group{{Call: &report.Call{Number: 2, Collective: "barrier", State: report.Ended},
		Members: []Member{{2, 5002, "a"}, {3, 5003, "a"}}}}, s.Communicators[0].Groups)
	require.Len(t, s.Skipped, 1)
	require.Equal(t, filepath.Join(dir.Path, "bad.json"), s.Skipped[0].Path)

	all, err := Read("made", "made/world.j.1.json", "made/fifo.json", "/dev/zero")
	require.NoError(t, err)
	require.Len(t, all.Communicators, 1)
	require.Equal(t, []int{1}, (&all.Communicators[0].Groups[0]).ranks())
	require.Equal(t, uint64(1), all.Communicators[0].Groups[0].Behind)
	require.Equal(t, []Skipped{{"/dev/zero", "not a regular file"}, {"made/bad.json", all.Skipped[1].Reason},
		{"made/fifo.json", "not a regular file"}}, all.Skipped)
	_, err = Read("made", "gone")
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.NoError(t, os.RemoveAll("made"))
	_, err = dir.Read()
	require.ErrorIs(t, err, plugin.System)
}

// A file that was replaced by one as old is another one.
func TestReplacedFilesAreNew(t *testing.T) {
	at := t.TempDir()
	h, old := headOf(1, 1, "barrier", report.Ended), time.Unix(1e9, 0)
	path := filepath.Join(at, h.FileName())
	require.NoError(t, report.Report{Head: h}.WriteFile(at))
	require.NoError(t, os.Chtimes(path, old, old))
	dir, err := Make(at)
	require.NoError(t, err)
	require.NoError(t, report.Report{Head: h}.WriteFile(at))
	require.NoError(t, os.Chtimes(path, old, old))
	s, err := dir.Read()
	require.NoError(t, err)
	require.Len(t, s.Communicators, 1)
}

func TestCollecting(t *testing.T) {
	there, h := t.TempDir(), headOf(1, 1, "barrier", report.Ended)
	require.NoError(t, report.Report{Head: h}.WriteFile(there))
	require.NoError(t, os.WriteFile(filepath.Join(there, "bad.json"), []byte("\x1b[31mred"), 0o600))
	var texts []string
	skipped, err := Each(there, func(path string, text []byte) error {
		texts = append(texts, filepath.Base(path), string(text))
		return nil
	})
	require.NoError(t, err)
	require.Len(t, skipped, 1)
	require.Equal(t, filepath.Join(there, "bad.json"), skipped[0].Path)
	require.Len(t, texts, 2)
	_, err = Each(there, func(string, []byte) error { return io.ErrClosedPipe })
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_, err = Each(filepath.Join(there, "gone"), nil)
	require.ErrorIs(t, err, plugin.System)

	dir, err := Make(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"", ".", "..", "../x.json", "/x.json", ".x.json", "x", "x.txt", "a/x.json"} {
		require.ErrorIs(t, dir.Add("node", name, nil), plugin.Protocol, name)
	}
	h.Job = "another"
	for i, host := range []string{"a", "b", "b"} {
		h.PID = 10 + i
		var text bytes.Buffer
		require.NoError(t, report.Report{Head: h}.WriteJSON(&text))
		require.NoError(t, dir.Add(host, texts[0], text.Bytes()))
	}
	names, err := os.ReadDir(dir.Path)
	require.NoError(t, err)
	require.Len(t, names, 2, "of two hosts, and nothing unfinished")
	require.Equal(t, []string{"world.j.1.json", "world.j.1@b.json"}, []string{names[0].Name(), names[1].Name()})
	s, err := dir.Read()
	require.NoError(t, err)
	require.Empty(t, s.Skipped)
}

// Whatever ranks write: the text is short, and nothing in it moves a terminal's cursor.
func FuzzSummary(f *testing.F) {
	var good bytes.Buffer
	for rank := range 3 {
		if err := (report.Report{Head: headOf(rank, uint64(rank), "recv", report.Called)}).WriteJSON(&good); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(good.String())
	f.Add(`{"communicator":"\u001b[2J","world":9,"host":"\r","code":"\n","failure":"\u202e\nx","last":{"number":18446744073709551615,"collective":"\t","state":"ended"}}` +
		"\n" + `{"communicator":"\u001b[2J","world":9,"rank":3,"host":"\r"}`)
	f.Fuzz(func(t *testing.T, lines string) {
		var heads []report.Head
		for line := range strings.Lines(lines) {
			if h, err := report.ReadHead(strings.NewReader(line)); err == nil {
				heads = append(heads, h)
			}
		}
		out := text(heads)
		if most := maxCommunicators * (1 + maxCauses + 1 + maxGroups + 1 + 1); strings.Count(out, "\n") > most+1 {
			t.Fatalf("%d lines", strings.Count(out, "\n"))
		}
		for _, r := range out {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%U in %q", r, out)
			}
		}
	})
}
