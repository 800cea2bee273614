package texts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var list = flag.Bool("texts.list", false, "print every text")

// says finds what a text says of its subject. An adjective in front of it will do where the text begins with it.
var says = regexp.MustCompile(`\b(is|are|was|were|has|have|had|does|do|did|needs?|want|failed|fails|cannot|must|may|takes?|returned|ended|died|gave|gives?|sent|called|disagree|` +
	`exceeds?|came|got|waits?|waited|differs?|expected|names?|serves?|offers?|ran|runs?|reach(es)?|load|responds?|responded|reports?|reported|belongs?|rejected|lost|loses?|lost|wrote|holds?|lacks?|knows?|supports?|` +
	`overflows?|wraps?|lies?|lie|says?|speaks?|follows?|joined|asked|asks?|allocates?|moves?|published|publishes|shares?|arrived|read|reads|choose|panicked|gathers|exclude|passes|use|uses|` +
	`tells|stopped|overlap|panics?|begins?|makes?|send|sends|closed|drive|adopt|expects?|changed|changes|goes|went|found|finds|excludes|left|welcomed|introduced|exited|outlives?|exports?|cancelled|gives up|gave up|stays|exists)\b` +
	`|^((ncclComm|ncclMem)\w+: |%s: )?(no|not|unknown|malformed|neither) `)

// opaque are words that tell a user nothing, or that STYLE's table replaces.
var opaque = []string{
	"in group %q", "of communicator %x", "introduced itself", "badly", "has patience", " is told", "in vain", "%#v", "%+v",
	"._tables", "context deadline exceeded", "such a ",
}

// wrapper is a text whose predicate is another error.
var wrapper = regexp.MustCompile(`^%[sqv]$|: %[vs]$|^%v; see `)

// offends returns the fault of a text; "" if it has none.
func (text Text) offends() string {
	for _, words := range opaque {
		if strings.Contains(text.Format, words) {
			return fmt.Sprintf("says %q", words)
		}
	}
	if text.Part != "" {
		return text.offendsHelp()
	}
	switch {
	case strings.HasSuffix(text.Format, "\n"), text.Whole && strings.HasSuffix(text.Format, "."):
		return "ends like a paragraph; others may put words behind it"
	case !text.Whole || wrapper.MatchString(text.Format) ||
		text.Format == "%s %s%s": // a process and its status, which is a verb
	case !says.MatchString(text.Format):
		return "has no verb: say what is so, and what was expected"
	}
	return ""
}

// TestErrorTexts looks at every error text of the library and at the help of the command; -texts.list prints them for a
// reader. What it finds is mended where the text stands.
func TestErrorTexts(t *testing.T) {
	all, err := List("../../..")
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string]int{}
	for _, text := range all {
		if *list {
			fmt.Printf("%s:%d: %s\n", text.File, text.Line, strings.ReplaceAll(text.Format, "\n", "\n\t"))
		}
		rooms[strings.SplitN(text.File, "/", 2)[0]+text.Part]++
		if why := text.offends(); why != "" {
			t.Errorf("%s:%d: %q %s", text.File, text.Line, text.Format, why)
		}
	}
	for _, room := range []string{"capi", "cmd", "cuda", "host", "plugin", "python",
		"transports", "cmd" + Summary, "cmd" + Description, "cmd" + Flag} { // else the list is blind
		if rooms[room] < 3 {
			t.Errorf("%d texts were found in %s", rooms[room], room)
		}
	}
}

// TestOffendingTexts: texts as they were once are found, in every way of making an error, and good ones are not.
func TestOffendingTexts(t *testing.T) {
	root := t.TempDir()
	for _, room := range rooms {
		if err := os.MkdirAll(filepath.Join(root, room, "shunt"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, source string) {
		if err := os.WriteFile(filepath.Join(root, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("host/a.go", `package host
func f() {
	plugin.Errorf(plugin.Internal, "device %d of %d", 1, 2)
	fmt.Errorf("rank %d "+"waited %v for %q in group %q", 1, 2, 3, 4)
	c.checker.Invalid(op, "base %d", 1)
	&plugin.Error{Code: plugin.Internal, Message: fmt.Sprintf("rank %d introduced itself badly", 1)}
	rankError(plugin.Timeout, 1, "the store closed.")
	plugin.Errorf(plugin.Internal, "device %d is out of range: %d visible", 1, 2)
	fmt.Errorf("preparing %s: %w", name, err)
}
`)
	write("python/shunt/a.py", `def f():
    raise ValueError(f"{n} counts for a world of {w}")
    raise ValueError(
        f"{name}: {n} counts, want one for each of {w} ranks")
`)
	write("capi/a.c", `int f(void) {
  shunt_fail(SHUNT_INTERNAL, "device %d "
             "of %d", one(1, ')'), 2);
  return nc_fail(comm, ncclInvalidArgument, NAME ": count is %d; want 1", n) + snprintf(text, 9, "badly");
}
`)
	write("python/shunt/a.cpp", `void f() {
  TORCH_CHECK(a(b, c) == "x,y", where("f"), "argument ", name, " badly");
  SHUNT_TORCH_CHECK(a, where, "rank ", rank, " of ", world);
  throw std::runtime_error("shunt: " + why);
}
`)
	write("cmd/shunt/a.go", `package main
func f() {
	cobra.Command{Short: "Moves tensors",
		Long: "Move tensors.\n\nEvery rank gets one"}
	cobra.Command{Short: "Move tensors.", Long: "Move tensors.\n\nEvery rank gets one."}
	f.IntVarP(&factor, "factor", "f", 4, "from one size to the next")
	f.Var(&least, "min", "The smallest "+
		"size")
	f.BoolVar(&all, "all", false, fmt.Sprintf("measure all of %v", names))
}
`)
	all, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, text := range all {
		if text.offends() != "" {
			found = append(found, fmt.Sprintf("%s:%d", text.File, text.Line))
		}
	}
	if got, want := fmt.Sprint(found), "[capi/a.c:2 cmd/shunt/a.go:3 cmd/shunt/a.go:4 cmd/shunt/a.go:5 cmd/shunt/a.go:6 cmd/shunt/a.go:7 "+
		"host/a.go:3 host/a.go:4 host/a.go:5 host/a.go:6 host/a.go:7 python/shunt/a.cpp:2 python/shunt/a.cpp:3 python/shunt/a.py:2]"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	if len(all) != 20 {
		t.Errorf("%d texts, want 20", len(all))
	}
}
