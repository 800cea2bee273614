package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// The page of the C interface has what its functions take and return, in whichever header it is.
func TestCPageHasTheTables(t *testing.T) {
	page, err := cPage("../..")
	require.NoError(t, err)
	for _, code := range plugin.Codes() {
		require.Contains(t, page, code.Doc())
	}
	for _, dtype := range plugin.DTypes() {
		require.Contains(t, page, dtype.Doc())
	}
	for _, op := range plugin.Ops() {
		require.Contains(t, page, op.Doc())
	}
	for _, collective := range plugin.Collectives() {
		require.Contains(t, page, collective.Doc())
	}
}

// The reference has every package that the guides send a reader to, and the site's menu every page of a package.
func TestReferenceHasThePackagesOfTheGuides(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guide/*.md")
	require.NoError(t, err)
	named := 0
	for _, page := range append(pages, "../../docs/transport-author.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("[Pp]ackage [`\\[]([a-z/]+)").FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join("../..", m[1])); err == nil { // the package `shunt` is Python's
				require.Contains(t, packages, m[1], page)
				named++
			}
		}
	}
	require.NotZero(t, named)
	menu, err := os.ReadFile("../../mkdocs.yml")
	require.NoError(t, err)
	for _, path := range packages {
		require.Contains(t, string(menu), "reference/go-"+strings.ReplaceAll(path, "/", "-")+".md\n")
	}
}
