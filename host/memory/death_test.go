package memory

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

// shareProcess runs rank 1 in a process of its own: it exchanges once, then stops where
// its name says.
func shareProcess() int {
	s, err := bootstrap.Join(context.Background(), bootstrap.Config{URL: "env", Timeout: 15 * time.Second})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	share, err := newShare(context.Background(), s.All())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	page, err := NewControlPage(0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	die := func(string) {
		// The parent kills or stops this process when it reads the line.
		fmt.Println("here")
		select {}
	}
	switch os.Getenv("SHUNT_TEST_SHARE_PROCESS") {
	case "before fetch":
		share.beforeFetch = die
	case "after fetch":
		share.afterFetch = die
	}
	_, err = share.Exchange(context.Background(), "regions", []plugin.Region{page.Region()})
	fmt.Println(err)
	return 1
}

func TestPeerDiesInTheMiddleOfAnExchange(t *testing.T) {
	for _, when := range []string{"before fetch", "after fetch"} {
		t.Run(when, func(t *testing.T) {
			id, _, err := bootstrap.NewID("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "SHUNT_TEST_SHARE_PROCESS="+when, "SHUNT_RANK=1", "SHUNT_WORLD=3", "SHUNT_ID="+
				id.String())
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killed := make(chan error, 1)
			go func() {
				line, err := bufio.NewReader(out).ReadString('\n')
				if err == nil && line != "here\n" {
					err = errors.New(line)
				}
				killed <- errors.Join(err, cmd.Process.Kill())
			}()
			errs := make([]error, 3)
			var wg sync.WaitGroup
			for _, rank := range []int{0, 2} {
				wg.Go(func() {
					s, err := bootstrap.Join(t.Context(), bootstrap.Config{Rank: rank, World: 3, ID: id, HaveID: true,
						Timeout: 15 * time.Second})
					if err != nil {
						errs[rank] = err
						return
					}
					defer s.Close()
					share, err := newShare(t.Context(), s.All())
					if err != nil {
						errs[rank] = err
						return
					}
					defer share.Close()
					page, err := NewControlPage(0)
					if err != nil {
						errs[rank] = err
						return
					}
					defer page.CloseFD()
					_, errs[rank] = share.Exchange(t.Context(), "regions", []plugin.Region{page.Region()})
				})
			}
			wg.Wait()
			if err := <-killed; err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // killed
			for _, rank := range []int{0, 2} {
				err := errs[rank]
				if plugin.CodeOf(err) != plugin.PeerDied || !strings.Contains(err.Error(),
					fmt.Sprintf("rank 1 (pid %d", cmd.Process.Pid)) || err.Error() != errs[0].Error() {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}
