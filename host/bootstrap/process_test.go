package bootstrap

import (
	"context"
	"fmt"
	"os"
	"time"
)

// rankProcess is the life of a rank in a process of its own: it joins as the
// environment says, reports on stdout, then does what SHUNT_TEST_RANK_PROCESS
// says until its stdin ends.
func rankProcess() int {
	s, err := Join(context.Background(), Config{URL: "env", Timeout: 20 * time.Second, Logger: quiet})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("joined", s.Rank(), s.World())
	switch os.Getenv("SHUNT_TEST_RANK_PROCESS") {
	case "barrier":
		err = s.All().Barrier(context.Background(), "b")
	case "wait": // for its stdin to end
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
	fmt.Println("done", err)
	if s.Close() != nil || err != nil {
		return 1
	}
	return 0
}
