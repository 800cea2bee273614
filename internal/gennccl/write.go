package main

import (
	"fmt"
	"slices"
	"strings"
)

const notice = "/* Code generated from capi/nccl/symbols.json by gennccl. DO NOT EDIT. */\n"

// kind says which library serves a function.
type kind int

const (
	byHand     kind = iota // nc_NAME alone, which knows when to ask the real library
	served                 // nc_NAME for Shunt's communicators, the real library for its own
	windows                // as served, and SHUNT_NCCL_FORWARD may give them to the real library
	collective             // as windows
	forwarded              // the real library, with its communicator
	everywhere             // the real library; there is no communicator
)

// hand lists the functions whose nc_NAME does everything.
var hand = strings.Fields(`
ncclGetVersion ncclGetErrorString ncclGetLastError ncclResetDebugInit ncclResetDebugInitInternal
ncclGetUniqueId ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommInitAll
ncclCommSplit ncclCommShrink ncclCommGrow ncclCommFinalize ncclCommDestroy ncclCommAbort ncclCommGetAsyncError
ncclGroupStart ncclGroupEnd ncclGroupSimulateEnd ncclMemAlloc ncclMemFree`)

// own lists the functions that Shunt serves for its communicators: those that are no collectives.
var own = strings.Fields(`
ncclCommCount ncclCommCuDevice ncclCommUserRank ncclCommRevoke ncclCommRegister ncclCommDeregister
ncclRedOpCreatePreMulSum ncclRedOpDestroy`)

var ofWindows = strings.Fields(`ncclCommWindowRegister ncclCommWindowDeregister ncclWinGetUserPtr`)

// collectives maps the functions that put work into a stream to their names in the flight recorder.
var collectives = map[string]string{
	"ncclAllReduce": "ALL_REDUCE", "ncclReduce": "REDUCE", "ncclBcast": "BROADCAST", "ncclBroadcast": "BROADCAST",
	"ncclAllGather": "ALL_GATHER", "ncclReduceScatter": "REDUCE_SCATTER", "ncclAlltoAll": "ALL_TO_ALL",
	"ncclGather": "GATHER", "ncclScatter": "SCATTER", "ncclSend": "SEND", "ncclRecv": "RECV",
	"ncclPutSignal": "PUT", "ncclSignal": "SIGNAL", "ncclWaitSignal": "WAIT",
}

func (f function) collective() string { return collectives[strings.TrimSuffix(f.Name, "Config")] }

func (f function) kind() kind {
	switch {
	case slices.Contains(hand, f.Name):
		return byHand
	case slices.Contains(own, f.Name):
		return served
	case slices.Contains(ofWindows, f.Name):
		return windows
	case !f.has("ncclComm_t"):
		return everywhere
	}
	switch f.collective() {
	case "", "PUT", "SIGNAL", "WAIT":
		return forwarded
	}
	return collective
}

// constant is the kind in C. ncclCommGrow is written by hand, but Shunt does not have it.
func (f function) constant() string {
	switch {
	case f.kind() == forwarded || f.Name == "ncclCommGrow":
		return "NC_LACKING"
	case f.kind() == windows:
		return "NC_WINDOWS"
	case f.kind() == collective:
		return "NC_COLLECTIVE"
	}
	return "NC_OTHER"
}

// byShunt tells whether Shunt has the function for its own communicators.
func (k kind) byShunt() bool { return k == served || k == windows || k == collective }

func (f function) has(kind string) bool {
	return slices.ContainsFunc(f.Takes, func(p parameter) bool { return p.Type == kind })
}

// named returns the name of the first parameter that has one of the names, or what is to be said without it.
func (f function) named(without string, names ...string) string {
	for _, p := range f.Takes {
		if slices.Contains(names, p.Name) {
			return p.Name
		}
	}
	return without
}

// short is the name without nccl.
func (f function) short() string { return strings.TrimPrefix(f.Name, "nccl") }

func declare(p parameter) string {
	if strings.HasSuffix(p.Type, "*") {
		at := strings.Index(p.Type, "*")
		return p.Type[:at] + " " + p.Type[at:] + p.Name
	}
	return p.Type + " " + p.Name
}

// parameters is the list of a prototype.
func (f function) parameters() string {
	if len(f.Takes) == 0 {
		return "void"
	}
	var all []string
	for _, p := range f.Takes {
		all = append(all, declare(p))
	}
	return strings.Join(all, ", ")
}

// arguments returns the list of a call, with comm in the place of the communicator.
func (f function) arguments(comm string) string {
	var all []string
	for _, p := range f.Takes {
		if p.Type == "ncclComm_t" {
			all = append(all, comm)
		} else {
			all = append(all, p.Name)
		}
	}
	return strings.Join(all, ", ")
}

func result(f function) string { return strings.ReplaceAll(f.Returns, "*", " *") }

// spaced puts the star of a pointer where the code of this repository has it.
func spaced(f function) string {
	if strings.HasSuffix(f.Returns, "*") {
		return result(f)
	}
	return f.Returns + " "
}

// header is the table of the real library's functions, and what is written by hand.
func header(s symbols) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString("#ifndef NC_SYMBOLS_GEN_H\n#define NC_SYMBOLS_GEN_H\n\n#include \"types.h\"\n\n")
	b.WriteString("/* The functions of NCCL, as places in the table of the real library's. */\nenum nc_symbol {\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "  NC_%s,\n", f.Name)
	}
	b.WriteString("  NC_SYMBOLS\n};\n\n#define NC_NAMES \\\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "  \"%s\", \\\n", f.Name)
	}
	b.WriteString("\n/* What SHUNT_NCCL_FORWARD may give to the real library: what Shunt does not have, windows, collectives. */\n" +
		"enum nc_kind { NC_OTHER, NC_LACKING, NC_WINDOWS, NC_COLLECTIVE };\n#define NC_FACTS \\\n")
	for _, f := range s.Functions {
		what := "-1"
		if c := f.collective(); c != "" {
			what = "SHUNT_COLL_" + c
		}
		fmt.Fprintf(&b, "  {%s, %s}, \\\n", f.constant(), what)
	}
	b.WriteString("\n/* The type of each. */\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "typedef %snc_type_%s(%s);\n", spaced(f), f.Name, f.parameters())
	}
	b.WriteString("\n/* What Shunt does itself. */\n")
	for _, f := range s.Functions {
		if k := f.kind(); k == byHand || k.byShunt() && !strings.HasSuffix(f.Name, "Config") {
			fmt.Fprintf(&b, "nc_type_%s nc_%s;\n", f.Name, f.short())
		}
	}
	b.WriteString("\n#endif\n")
	return b.String()
}

// exports is the exported functions: strong pncclNAME, weak ncclNAME.
func exports(s symbols) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString("#include \"nc.h\"\n#include \"real.h\"\n#include \"watch.h\"\n\n")
	b.WriteString("#define API __attribute__((visibility(\"default\")))\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "\nAPI nc_type_%s p%s;\nAPI %sp%s(%s) {\n", f.Name, f.Name, spaced(f), f.Name, f.parameters())
		b.WriteString(f.body())
		fmt.Fprintf(&b, "}\nAPI __attribute__((weak, alias(\"p%s\"))) nc_type_%s %s;\n", f.Name, f.Name, f.Name)
	}
	return b.String()
}

// body returns the body of an exported function.
func (f function) body() string {
	if f.kind() == byHand {
		if f.Returns == "void" {
			return fmt.Sprintf("  nc_%s(%s);\n", f.short(), f.arguments("comm"))
		}
		return fmt.Sprintf("  return nc_%s(%s);\n", f.short(), f.arguments("comm"))
	}
	var b strings.Builder
	comm := "NULL"
	if f.kind() == everywhere {
		if f.has("ncclWindow_t") {
			fmt.Fprintf(&b, "  if (nc_is_window(window))\n    return nc_not_served(NULL, NC_%s);\n", f.Name)
		}
	} else {
		comm = "comm"
		fmt.Fprintf(&b, "  ncclComm_t real = %s;\n", f.real())
		switch {
		case f.kind() == forwarded:
			fmt.Fprintf(&b, "  if (real == NULL)\n    return %s;\n", f.failure("nc_unserved", comm))
		case strings.HasSuffix(f.Name, "Config"):
			plain := function{Name: strings.TrimSuffix(f.Name, "Config"), Takes: f.Takes[:len(f.Takes)-1]}
			fmt.Fprintf(&b, "  if (real == NULL) {\n    ncclResult_t checked = nc_with_config(comm, config, NC_%s);\n"+
				"    return checked == ncclSuccess ? nc_%s(%s) : checked;\n  }\n", f.Name, plain.short(), plain.arguments("comm"))
		default:
			fmt.Fprintf(&b, "  if (real == NULL)\n    return nc_%s(%s);\n", f.short(), f.arguments("comm"))
		}
	}
	fmt.Fprintf(&b, "  nc_type_%s *function = (nc_type_%s *)nc_real(NC_%s);\n", f.Name, f.Name, f.Name)
	if f.Returns == "void" {
		fmt.Fprintf(&b, "  if (function != NULL)\n    function(%s);\n", f.arguments("real"))
		return b.String()
	}
	fmt.Fprintf(&b, "  if (function == NULL)\n    return %s;\n", f.failure("nc_lacks", comm))
	if what := f.collective(); what != "" {
		count, dtype := f.named("0", "count", "sendcount", "recvcount"), f.named("-1", "datatype")
		fmt.Fprintf(&b, "  struct nc_mark mark = nc_watch(comm, SHUNT_COLL_%s, (int64_t)%s, %s, %s, %s, stream);\n", what, count,
			dtype, f.named("-1", "op"), f.named("-1", "root", "peer"))
		fmt.Fprintf(&b, "  return nc_watched(comm, mark, function(%s));\n", f.arguments("real"))
		return b.String()
	}
	if f.Returns == "ncclResult_t" {
		fmt.Fprintf(&b, "  return nc_came(%s, function(%s));\n", comm, f.arguments("real"))
	} else {
		fmt.Fprintf(&b, "  return function(%s);\n", f.arguments("real"))
	}
	return b.String()
}

// real returns the C expression for the real library's communicator.
func (f function) real() string {
	switch {
	case f.kind() == served:
		return "nc_only_real(comm)"
	case f.kind() == forwarded:
		return "nc_real_or_make(comm, NC_" + f.Name + ")"
	case f.has("ncclRedOp_t"):
		return "nc_real_with_op(comm, NC_" + f.Name + ", &op)"
	}
	return "nc_real_of(comm, NC_" + f.Name + ")"
}

// failure returns the C expression of a function's result where the function named what makes the error.
func (f function) failure(what, comm string) string {
	call := fmt.Sprintf("%s(%s, NC_%s)", what, comm, f.Name)
	switch f.Returns {
	case "ncclResult_t":
		return call
	case "ncclTeam_t":
		return fmt.Sprintf("((void)%s, (ncclTeam_t){0, 0, 0})", call)
	}
	return fmt.Sprintf("((void)%s, -1)", call)
}

// declarations is nccl.h for the test programs.
func declarations(s symbols) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString("#ifndef NCCL_GEN_H\n#define NCCL_GEN_H\n\n#include \"symbols_gen.h\"\n\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "nc_type_%s %s, p%s;\n", f.Name, f.Name, f.Name)
	}
	b.WriteString("\n#endif\n")
	return b.String()
}
