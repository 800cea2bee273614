// Package snippets runs the programs that documents print, as they are
// printed. A program is a fenced block behind a line such as
//
//	<!-- snippet: go -->
//
// What lives here is finding them and running them; the programs live in the
// documents. A test also checks that the paths which documents name exist.
package snippets
