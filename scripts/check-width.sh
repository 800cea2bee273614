#!/bin/sh
# Lists lines of more than 120 characters in Go and Markdown. Texts in quotes stay in one
# piece, so that they can be searched for; tables and headings cannot be wrapped.
set -eu
cd "$(dirname "$0")/.."
git ls-files '*.go' '*.md' | grep -vE '_gen\.go$|\.pb\.go$|/mutants_test\.go$|/mutations\.go$|^docs/options\.md$' |
	xargs perl -CSD -ne '
		$code = !$code if $ARGV =~ /md$/ && /^ *```/;
		next if length() <= 121 || $code;                     # with its newline
		next if /"([^"\\]|\\.){40,}|`[^`]{40,}/;              # a text
		next if $ARGV =~ /md$/ && /^[|#\[]|^ *<|\]\(http/;    # a table, a heading, an address
		next if m{^#cgo |^static |^//\t|^  no file:};         # C, preformatted, expected output
		next if /func\(op \*operation\)|^\t\{"collective"/;   # rows of tables
		printf "%s:%d: %d characters, at most 120\n", $ARGV, $., length() - 1; $long = 1;
	} continue { if (eof) { close ARGV; $code = 0 } } END { exit !!$long;'
