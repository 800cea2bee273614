package turn

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var errClosed = errors.New("closed")

func refuse() error { return errClosed }

// Whatever mixes: one holds the turn at a time, and every request is popped once, in the order in which it came.
func TestOneHolderAtATime(t *testing.T) {
	const callers, each = 8, 200
	var turn Turn[int]
	var all sync.WaitGroup
	held, popped := 0, []int(nil) // guarded by the turn; the race detector and the count say so
	leave := func() {
		if turn.Leave() {
			return
		}
		for r, ok := turn.Pop(); ok; r, ok = turn.Pop() {
			popped = append(popped, r)
		}
	}
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				switch caller % 2 {
				case 0:
					if err := turn.Wait(refuse); err != nil {
						t.Error(err)
						return
					}
					held++
					leave()
				default:
					start, err := turn.Push(caller*each+i, refuse)
					if err != nil {
						t.Error(err)
						return
					}
					if start {
						for r, ok := turn.Pop(); ok; r, ok = turn.Pop() {
							popped = append(popped, r)
						}
					}
				}
			}
		})
	}
	all.Wait()
	require.True(t, turn.Try(), "it is free in the end")
	require.Equal(t, callers/2*each, held)
	require.Len(t, popped, callers/2*each)
	last := map[int]int{}
	for _, r := range popped {
		require.GreaterOrEqual(t, r%each, last[r/each], "requests of caller %d", r/each)
		last[r/each] = r % each
	}
}

// Shut waits for the holder and for the requests before it; callers that wait, or come later, are rejected.
func TestShut(t *testing.T) {
	var turn Turn[int]
	require.True(t, turn.Try())
	start, err := turn.Push(7, refuse)
	require.NoError(t, err)
	require.False(t, start, "the holder looks after it")
	require.True(t, turn.Contended())
	shut := make(chan struct{})
	go func() {
		turn.Shut()
		close(shut)
	}()
	require.False(t, turn.Leave(), "a request waits")
	r, ok := turn.Pop()
	require.True(t, ok)
	require.Equal(t, 7, r)
	_, ok = turn.Pop()
	require.False(t, ok)
	<-shut
	require.False(t, turn.Try())
	require.ErrorIs(t, turn.Wait(refuse), errClosed)
	_, err = turn.Push(8, refuse)
	require.ErrorIs(t, err, errClosed)
}
