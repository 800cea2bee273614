package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
)

func newRecords() *cobra.Command {
	return &cobra.Command{
		Use:   "records DIR|FILE...",
		Short: "Sum up what ranks ran last when their communicator failed",
		Long: `Sum up what ranks ran last when their communicator failed.

Ranks write records into SHUNT_RECORDS_DIR; bring the files of all hosts together.
For each communicator the summary says why it failed, which ranks were in which
call, which were behind the others, and which wrote no file.

Collectives are numbered alike on all ranks. On a GPU a call is enqueued:
whether it ended in its stream is not seen.`,
		Example: "  shunt records /shared/records\n  shunt records host*/world.*.json",
		Args:    atLeastOne("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			summary, err := records.Read(args...)
			if err != nil {
				return err
			}
			if wantsJSON(c) {
				err = printJSON(c, summary)
			} else {
				fmt.Fprint(c.OutOrStdout(), summary)
			}
			if err == nil && len(summary.Communicators) == 0 {
				return &exitError{exitWrong, fmt.Errorf("no records in %s", strings.Join(args, ", "))}
			}
			return err
		},
	}
}

// lastRecords sums up the records of a failed job, as text that follows the message
// that says how it ended.
func lastRecords(dir *records.Dir, gather *gathering, timedOut bool) (records.Summary, string) {
	summary, err := dir.Read()
	if gather != nil {
		summary.Skipped = append(summary.Skipped, gather.skipped()...)
	}
	switch {
	case err != nil:
		return summary, fmt.Sprintf("no records: %v", err)
	case len(summary.Communicators)+len(summary.Skipped) == 0:
		text := "there are no records in " + dir.Path + ": no communicator failed, or no rank could write one"
		if timedOut {
			text += "; to get records of a job that hangs, set SHUNT_TIMEOUT (60 s unless set) well below --timeout"
		}
		return summary, text
	}
	return summary, summary.String() + "the records are in " + dir.Path
}
