package main

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// unpublished are exported functions that no header declares for Linux.
var unpublished = map[string]function{
	"ncclResetDebugInitInternal": {Returns: "void"},
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	prototype = regexp.MustCompile(`((?:const\s+)?\w+(?:\s*\*)?)\s+(nccl\w+)\s*\(([^()]*)\)\s*;`)
	spaces    = regexp.MustCompile(`\s+`)
	lastWord  = regexp.MustCompile(`^(.*[\s*])(\w+)$`)
	byDefault = regexp.MustCompile(`=.*`)
)

// readPackages reads every exported function of the versions; a later version's prototype must agree with an
// earlier one's.
func readPackages(given []string) (symbols, error) {
	s := symbols{About: "Every function that libnccl.so.2 of these versions exports; written by gennccl -refresh of " +
		"NVIDIA's packages on PyPI"}
	known := map[string]*function{}
	for _, g := range given {
		version, dir, found := strings.Cut(g, "=")
		if !found {
			return s, fmt.Errorf("-refresh %q; want VERSION=DIR", g)
		}
		s.Versions = append(s.Versions, version)
		declared, err := readHeaders(filepath.Join(dir, "include"))
		if err != nil {
			return s, err
		}
		names, err := exported(filepath.Join(dir, "lib", "libnccl.so.2"))
		if err != nil {
			return s, err
		}
		for _, name := range names {
			f, ok := declared[name]
			if !ok {
				if f, ok = unpublished[name]; !ok {
					return s, fmt.Errorf("NCCL %s exports %s, which no header declares: add it to unpublished", version, name)
				}
				f.Name = name
			}
			if k := known[name]; k == nil {
				f.Since = version
				known[name] = &f
			} else if !sameTypes(*k, f) {
				return s, fmt.Errorf("%s differs between the versions: %v, %v", name, *k, f)
			} else {
				k.Takes = f.Takes // the newer header names every parameter
			}
		}
	}
	for _, f := range known {
		s.Functions = append(s.Functions, *f)
	}
	slices.SortFunc(s.Functions, func(a, b function) int { return strings.Compare(a.Name, b.Name) })
	return s, nil
}

func sameTypes(a, b function) bool {
	same := func(x, y parameter) bool { return x.Type == y.Type }
	return a.Returns == b.Returns && slices.EqualFunc(a.Takes, b.Takes, same)
}

func readHeaders(dir string) (map[string]function, error) {
	found := map[string]function{}
	for _, pattern := range []string{"nccl.h", "nccl_device/*.h"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path) //nolint:gosec // a header that the caller named
			if err != nil {
				return nil, err
			}
			for _, m := range prototype.FindAllStringSubmatch(comments.ReplaceAllString(string(text), " "), -1) {
				f := function{Name: m[2], Returns: tidy(m[1])}
				if strings.Contains(m[3], "&") || f.Returns == "INLINE" {
					continue // C++, for the device
				}
				for i, p := range strings.Split(m[3], ",") {
					p = tidy(byDefault.ReplaceAllString(p, ""))
					if p == "" || p == "void" {
						continue
					}
					taken := parameter{Type: p, Name: fmt.Sprintf("argument%d", i)}
					if n := lastWord.FindStringSubmatch(p); n != nil && !isType(n[2]) {
						taken = parameter{Type: tidy(n[1]), Name: n[2]}
					}
					taken.Type = typeOf(taken.Type)
					f.Takes = append(f.Takes, taken)
				}
				if _, again := found[f.Name]; !again {
					found[f.Name] = f
				}
			}
		}
	}
	return found, nil
}

func isType(word string) bool {
	return strings.HasSuffix(word, "_t") || word == "int" || word == "const"
}

// tidy is a type in one form: "const void*", "ncclComm_t".
func tidy(text string) string {
	text = strings.TrimSpace(spaces.ReplaceAllString(text, " "))
	return strings.ReplaceAll(text, " *", "*")
}

// typeOf is a type as capi/nccl/types.h names it.
func typeOf(t string) string {
	pointer := strings.Count(t, "*")
	base := strings.ReplaceAll(t, "*", "")
	constant := strings.Contains(base, "const")
	base = strings.TrimSpace(strings.ReplaceAll(base, "const", ""))
	base = strings.TrimSpace(spaces.ReplaceAllString(base, " "))
	if strings.HasPrefix(base, "nccl") && !strings.HasSuffix(base, "_t") && base != "ncclUniqueId" {
		base += "_t"
	}
	if constant && pointer > 0 {
		base = "const " + base
	}
	return base + strings.Repeat("*", pointer)
}

// exported are the functions nccl* of a library.
func exported(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	all, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "nccl") && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}
