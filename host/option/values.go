package option

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Rank returns SHUNT_RANK, and whether it is set.
func (o *Options) Rank() (int, bool) { return int(o.integers[idRank]), o.set[idRank] }

// World returns SHUNT_WORLD, and whether it is set.
func (o *Options) World() (int, bool) { return int(o.integers[idWorld]), o.set[idWorld] }

// ID returns SHUNT_ID, or "".
func (o *Options) ID() string { return o.texts[idID] }

// Secret returns SHUNT_SECRET, or "".
func (o *Options) Secret() string { return o.texts[idSecret] }

// Transports returns SHUNT_TRANSPORTS as a list, nil when unset. The caller owns it.
func (o *Options) Transports() []string { return SplitList(o.texts[idTransports]) }

// SplitList reads a list of transports as SHUNT_TRANSPORTS has it: separated
// by commas, blanks and empty entries ignored. The caller owns it.
func SplitList(text string) []string {
	var list []string
	for _, entry := range strings.Split(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			list = append(list, entry)
		}
	}
	return list
}

// PluginStart returns SHUNT_PLUGIN_START_TIMEOUT.
func (o *Options) PluginStart() time.Duration { return time.Duration(o.integers[idPluginStart]) }

// PluginDir returns SHUNT_PLUGIN_DIR, or "".
func (o *Options) PluginDir() string { return o.texts[idPluginDir] }

// Algo returns SHUNT_ALGO, or ""; selector.Parse reads it.
func (o *Options) Algo() string { return o.texts[idAlgo] }

// TuningFile returns SHUNT_TUNING_FILE, or ""; selector.ReadTuning reads the file.
func (o *Options) TuningFile() string { return o.texts[idTuningFile] }

// TuningMode returns SHUNT_TUNING_MODE: graph or eager.
func (o *Options) TuningMode() string { return o.texts[idTuningMode] }

// Numerics returns SHUNT_NUMERICS: the most that may differ from the tables' results.
func (o *Options) Numerics() plugin.Numerics {
	return plugin.Numerics(slices.Index(table[idNumerics].Choices, o.texts[idNumerics]))
}

// Timeout returns SHUNT_TIMEOUT.
func (o *Options) Timeout() time.Duration { return time.Duration(o.integers[idTimeout]) }

// Stall returns SHUNT_STALL_WARNING.
func (o *Options) Stall() time.Duration { return time.Duration(o.integers[idStall]) }

// Heartbeat returns SHUNT_HEARTBEAT.
func (o *Options) Heartbeat() time.Duration { return time.Duration(o.integers[idHeartbeat]) }

// Spin returns SHUNT_SPIN_COUNT: looks at memory before a yield, or -1 for automatic.
func (o *Options) Spin() int { return int(o.integers[idSpin]) }

// PeerRead returns SHUNT_PEER_READ: whether peers may read this rank's memory, and it
// theirs, if they can.
func (o *Options) PeerRead() bool { return o.texts[idPeerRead] != "off" }

// MaxSMs returns SHUNT_MAX_SMS, or 0.
func (o *Options) MaxSMs() int { return int(o.integers[idMaxSMs]) }

// Check returns SHUNT_CHECK.
func (o *Options) Check() bool { return o.integers[idCheck] != 0 }

// ShareGPU returns SHUNT_SHARE_GPU.
func (o *Options) ShareGPU() bool { return o.integers[idShareGPU] != 0 }

// LogLevel returns SHUNT_LOG as a level of log/slog.
func (o *Options) LogLevel() slog.Level {
	switch o.texts[idLog] {
	case "error":
		return slog.LevelError
	case "info":
		return slog.LevelInfo
	case "debug":
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// Records returns SHUNT_FLIGHT_RECORDER_SIZE: operations that the flight recorder keeps.
func (o *Options) Records() int { return int(o.integers[idRecords]) }

// RecordsDir returns SHUNT_RECORDS_DIR, or "".
func (o *Options) RecordsDir() string { return o.texts[idRecordsDir] }

// Delays returns SHUNT_DELAYS, or ""; executor.ParseDelays reads it.
func (o *Options) Delays() string { return o.texts[idDelays] }

// Set lists the variables that the environment sets, with their values, in the order of the table, and then those that
// have the form of a transport's. Secrets are not shown.
func (o *Options) Set() []Setting {
	var list []Setting
	for i := range table {
		if !o.set[i] {
			continue
		}
		value := o.texts[i]
		if index(i) == idSecret || index(i) == idID {
			value = "(set; not shown)" // a process that has it can join the job
		}
		list = append(list, Setting{Name: table[i].Name, Value: value})
	}
	for _, name := range slices.Sorted(maps.Keys(o.transports)) {
		list = append(list, Setting{Name: name, Value: o.transports[name]})
	}
	return list
}

// Setting is a variable and its value.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}
