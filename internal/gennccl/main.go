// Command gennccl writes what the NCCL-compatible library (capi/nccl) has one of for each
// function of NCCL: the exported functions, the table by which the real library's are found, and the test that
// calls every one of them. It reads capi/nccl/symbols.json, which -refresh makes anew of NCCL's own packages:
//
//	gennccl -refresh OLDEST=DIR,NEWEST=DIR
//
// where each DIR is the folder nvidia/nccl of an unpacked nvidia-nccl package of PyPI (include/ and lib/).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shunt-ccl/shunt/internal/generated"
)

// symbols is capi/nccl/symbols.json.
type symbols struct {
	About     string     `json:"about"`
	Versions  []string   `json:"versions"` // of which every exported function is listed, oldest first
	Functions []function `json:"functions"`
}

// function is one function of NCCL; all are exported a second time with a p in front.
type function struct {
	Name    string      `json:"name"`
	Since   string      `json:"since"` // the first of Versions that has it
	Returns string      `json:"returns"`
	Takes   []parameter `json:"takes"`
}

type parameter struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

const folder = "capi/nccl"

func main() {
	given := flag.String("refresh", "", "VERSION=DIR,VERSION=DIR: read NCCL's packages, oldest version first")
	flag.Parse()
	if err := run(*given); err != nil {
		fmt.Fprintln(os.Stderr, "gennccl:", err)
		os.Exit(1)
	}
}

func run(given string) error {
	table := filepath.Join(folder, "symbols.json")
	if given != "" {
		s, err := readPackages(strings.Split(given, ","))
		if err != nil {
			return err
		}
		b, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			return err
		}
		if err := generated.Write(table, append(b, '\n')); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(table) //nolint:gosec // a constant
	if err != nil {
		return err
	}
	var s symbols
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s: %w", table, err)
	}
	for name, text := range map[string]string{
		"symbols_gen.h":             header(s),
		"test/programs/nccl_gen.h":  declarations(s),
		"exports_gen.c":             exports(s),
		"test/programs/fake_gen.c":  fake(s),
		"test/programs/every_gen.c": every(s),
	} {
		if err := generated.Write(filepath.Join(folder, name), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}
