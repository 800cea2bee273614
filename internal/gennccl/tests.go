package main

import (
	"fmt"
	"strings"
)

// A value shows and makes a parameter of a type in the tests.
type value struct {
	format string
	show   func(name string) string // arguments for the format
	make   func(i int) string       // an expression for parameter i, different from the others'
}

func shown(cast string) func(string) string { return func(name string) string { return cast + name } }

func numbered(format string) func(int) string {
	return func(i int) string { return fmt.Sprintf(format, 101+i) }
}

// valueOf is the value of a parameter.
func valueOf(p parameter) value {
	switch p.Type {
	case "ncclComm_t*": // which the library may replace by one of its own
		return value{"out", nil, numbered("made /* %d */")}
	case "ncclComm_t":
		return value{"%p", shown("(void *)"), numbered("comm /* %d */")}
	case "ncclResult_t*":
		return value{"%p", shown("(void *)"), numbered("&asynchronous /* %d */")}
	case "ncclUniqueId*", "const ncclUniqueId*": // which the library may read
		return value{"%p", shown("(const void *)"), numbered("&read /* %d */")}
	case "ncclUniqueId":
		return value{"%.7s", func(n string) string { return n + ".internal" }, numbered("(ncclUniqueId){\"id%d\"}")}
	case "ncclTeam_t":
		return value{"%d/%d/%d", func(n string) string { return n + ".nRanks, " + n + ".rank, " + n + ".stride" },
			func(i int) string { return fmt.Sprintf("(ncclTeam_t){%d, %d, %d}", 200+i, 300+i, 400+i) }}
	case "ncclMultimemHandle_t":
		return value{"%p", func(n string) string { return n + ".mcBasePtr" },
			numbered("(ncclMultimemHandle_t){(void *)%dul}")}
	case "size_t":
		return value{"%zu", shown(""), numbered("((size_t)%d << 33)")}
	}
	if strings.HasSuffix(p.Type, "*") || p.Type == "cudaStream_t" || strings.HasPrefix(p.Type, "ncclWindow") ||
		strings.HasPrefix(p.Type, "ncclParamHandle") {
		return value{"%p", shown("(const void *)"), numbered("(void *)(%dul << 36)")}
	}
	return value{"%d", shown("(int)"), numbered("%d")}
}

// text is the format of a call and its arguments.
func (f function) text(argument func(i int, v value, p parameter) string) (format, arguments string) {
	formats, all := []string{f.Name}, []string{""}
	for i, p := range f.Takes {
		v := valueOf(p)
		formats = append(formats, p.Name+"="+v.format)
		if v.show != nil {
			all = append(all, argument(i, v, p))
		}
	}
	return strings.Join(formats, " "), strings.Join(all, ", ")
}

// fake is a library of NCCL's functions that writes down how it is called.
func fake(s symbols) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString("#include \"fake.h\"\n")
	for _, f := range s.Functions {
		if f.Since != s.Versions[0] {
			b.WriteString("\n#ifndef OLDER\n")
		}
		fmt.Fprintf(&b, "\nnc_type_%s p%s;\n%sp%s(%s) {\n", f.Name, f.Name, spaced(f), f.Name, f.parameters())
		format, arguments := f.text(func(_ int, v value, p parameter) string { return v.show(p.Name) })
		fmt.Fprintf(&b, "  fake_note(\"%s\"%s);\n", format, arguments)
		for _, p := range f.Takes {
			switch p.Type {
			case "ncclComm_t*":
				fmt.Fprintf(&b, "  fake_make(%s, %s);\n", p.Name, f.named("1", "ndev"))
			case "ncclUniqueId*":
				fmt.Fprintf(&b, "  fake_make_id(%s);\n", p.Name)
			case "ncclRedOp_t*":
				fmt.Fprintf(&b, "  fake_make_op(%s);\n", p.Name)
			}
		}
		switch f.Returns {
		case "ncclResult_t":
			b.WriteString("  return fake_result;\n")
		case "ncclTeam_t":
			b.WriteString("  return (ncclTeam_t){7, 8, 9};\n")
		case "int":
			b.WriteString("  return 42;\n")
		case "const char*":
			b.WriteString("  return fake_text;\n")
		}
		fmt.Fprintf(&b, "}\n__attribute__((alias(\"p%s\"))) nc_type_%s %s;\n", f.Name, f.Name, f.Name)
		if f.Since != s.Versions[0] {
			b.WriteString("#endif\n")
		}
	}
	return b.String()
}

// every calls each function and compares with what the fake library has written down.
func every(s symbols) string {
	var b strings.Builder
	b.WriteString(notice)
	b.WriteString("#include \"every.h\"\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "\nstatic void call_%s(void *function, ncclComm_t comm, ncclComm_t theirs) {\n", f.Name)
		b.WriteString("  ncclResult_t asynchronous = 0;\n  ncclComm_t made[256] = {0};\n  ncclUniqueId read = {{0}};\n" +
			"  (void)comm, (void)theirs, (void)asynchronous, (void)made, (void)read;\n")
		var given []string
		for i, p := range f.Takes {
			given = append(given, valueOf(p).make(i))
		}
		format, arguments := f.text(func(i int, v value, p parameter) string {
			if p.Type == "ncclComm_t" {
				return "(void *)theirs"
			}
			return v.show(v.make(i))
		})
		fmt.Fprintf(&b, "  expect(\"%s\"%s);\n", format, arguments)
		call := fmt.Sprintf("((nc_type_%s *)function)(%s)", f.Name, strings.Join(given, ", "))
		switch f.Returns {
		case "ncclResult_t":
			fmt.Fprintf(&b, "  returned(%s);\n", call)
		case "ncclTeam_t":
			fmt.Fprintf(&b, "  ncclTeam_t team = %s;\n  returned_team(team);\n", call)
		case "int":
			fmt.Fprintf(&b, "  returned_int(%s);\n", call)
		case "const char*":
			fmt.Fprintf(&b, "  returned_text(%s);\n", call)
		default:
			fmt.Fprintf(&b, "  %s;\n", call)
		}
		b.WriteString("}\n")
	}
	b.WriteString("\nconst struct entry entries[] = {\n")
	for _, f := range s.Functions {
		fmt.Fprintf(&b, "    {\"%s\", call_%s, %d, %t, %t},\n", f.Name, f.Name, f.kind(), f.Since != s.Versions[0],
			f.Returns == "ncclResult_t")
	}
	b.WriteString("};\nconst int entry_count = sizeof entries / sizeof *entries;\n")
	return b.String()
}
