package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/plugin"
)

// release and commit are set by the linker (-X main.release=…) in builds that have no module version of their own.
var release, commit string

// versionReport is the output of version --json.
type versionReport struct {
	Version  string `json:"version"`          // of the module, such as 1.1.0, or (devel)
	Commit   string `json:"commit,omitempty"` // of the source
	Modified bool   `json:"modified"`         // the source had changes that were not committed
	Contract string `json:"transport_contract"`
	CABI     string `json:"transport_symbol"` // of shared transports
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion returns the version that the Go tool, or the linker's flags, recorded.
func readVersion() versionReport {
	r := versionReport{Version: release, Commit: commit, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Contract: fmt.Sprintf("%d.%d", plugin.VersionMajor, plugin.VersionMinor),
		CABI:     fmt.Sprintf("shunt_transport_v%d", plugin.VersionMajor)}
	if info, ok := debug.ReadBuildInfo(); ok {
		r.Version = cmp.Or(r.Version, info.Main.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				r.Commit = cmp.Or(r.Commit, s.Value)
			case "vcs.modified":
				r.Modified = s.Value == "true"
			}
		}
	}
	r.Version = cmp.Or(r.Version, "unknown")
	return r
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the command and of what it was built with",
		Long: fmt.Sprintf(`Print the versions of the command and of what it was built with.

The contract is that of transports: a transport that was built for another major
version, or for one before %d.%d, is rejected.`, plugin.VersionMajor, plugin.VersionOldest),
		Args: flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			r := readVersion()
			if wantsJSON(c) {
				return printJSON(c, r)
			}
			source := cmp.Or(r.Commit, "unknown")
			if r.Modified {
				source += ", with changes"
			}
			fmt.Fprintf(c.OutOrStdout(), "shunt %s\ncommit %s\ntransport contract %s (%s)\n%s %s\n", r.Version, source,
				r.Contract, r.CABI, r.Go, r.Platform)
			return nil
		},
	}
}
