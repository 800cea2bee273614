#!/bin/sh
# Lists lines of more than 120 characters in tracked files of the kinds below and in shell scripts without an ending. A
# tab counts as one.
#
# In Go and Markdown texts in quotes stay in one piece, so that they can be searched for; tables and headings cannot be
# wrapped. Left out are generated files that nobody reads, and the mutants and mutations of tests, which quote other
# files.
set -eu
cd "$(dirname "$0")/.."
kinds='\.(go|md|c|h|cc|cpp|hpp|cu|cuh|py|pyi|sh|mk)$|(^|/)Makefile$'
{
	git ls-files | grep -E "$kinds"
	git grep -lE '^#!.*/(env )?(ba)?sh' | grep -vE '\.[^/]*$'
} | sort -u | grep -vE '_gen\.[a-z]+$|\.pb\.go$|/mutants_test\.go$|/mutations\.go$' |
	xargs perl -CSD -ne '
		if ($. == 1) { $prose = $ARGV =~ /\.(go|md)$/; $code = 0; }
		$code = !$code if $ARGV =~ /md$/ && /^ *```/;
		next if length() <= 121 || $code;                     # with its newline
		if ($prose) {
			next if /"([^"\\]|\\.){40,}|`[^`]{40,}/;              # a text
			next if $ARGV =~ /md$/ && /^[|#\[]|^ *<|\]\(http/;    # a table, a heading, an address
			next if m{^#cgo |^static |^//\t|^  no file:};         # C, preformatted, expected output
			next if /func\(op \*operation\)|^\t\{"collective"/;   # rows of tables
		}
		printf "%s:%d: %d characters, at most 120\n", $ARGV, $., length() - 1; $long = 1;
	} continue { if (eof) { close ARGV } } END { exit !!$long;'
