package test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForward: SHUNT_NCCL_FORWARD gives single functions to the real library, which the stand-in writes down.
func TestForward(t *testing.T) {
	binary, library := program(t, "forward"), "SHUNT_NCCL_LIBRARY="+stand(t, "fake.so")
	for scenario, value := range map[string]string{
		"unsupported": "unsupported",
		"listed":      "all_reduce,ncclSend, ncclWinGetUserPtr",
	} {
		t.Run(scenario, func(t *testing.T) {
			world(t, binary, 3, library, "SHUNT_NCCL_FORWARD="+value, "SCENARIO="+scenario)
		})
	}
	for name, scenario := range map[string]string{"an abort while it is made": "abort", "an abort inside it": "leave"} {
		t.Run(name, func(t *testing.T) {
			processes(t, binary, 2, func(int) []string {
				return []string{library, "SHUNT_NCCL_FORWARD=unsupported", "SCENARIO=" + scenario}
			})
		})
	}
}

// TestForwardTellsEveryRank: what goes wrong on one rank is an error of all ranks, which names that rank.
func TestForwardTellsEveryRank(t *testing.T) {
	binary, library := program(t, "forward"), "SHUNT_NCCL_LIBRARY="+stand(t, "fake.so")
	for name, other := range map[string]struct{ scenario, words, first, second string }{
		"settings that differ":       {"differing", "", "SHUNT_NCCL_FORWARD=unsupported", "SHUNT_NCCL_FORWARD=all_reduce"},
		"a rank without settings":    {"differing", "", "SHUNT_NCCL_FORWARD=unsupported", "SHUNT_NCCL_FORWARD="},
		"a rank without the library": {"missing", "on rank 1: ncclGetUniqueId needs", "", "SHUNT_NCCL_LIBRARY=/gone.so"},
		"a rank whose library fails": {"failing", "on rank 1: fake", "", ""},
		"others inside the library":  {"stuck", "on rank 1: fake", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			processes(t, binary, 2, func(rank int) []string {
				env := []string{library, "SHUNT_NCCL_FORWARD=unsupported", "SCENARIO=" + other.scenario}
				return append(env, "WORDS="+other.words, []string{other.first, other.second}[rank])
			})
		})
	}
}

// TestLastErrorOfTheRealLibrary: ncclGetLastError(NULL) is the text of the thread's latest failure.
func TestLastErrorOfTheRealLibrary(t *testing.T) {
	binary := program(t, "forward")
	all := []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY=" + stand(t, "fake.so"), "SCENARIO=latest"}
	_, err := run(t, all, binary)
	require.NoError(t, err)
}

func TestForwardRefusesWhatItCannotGive(t *testing.T) {
	binary := program(t, "forward")
	all := []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY=" + stand(t, "fake.so"), "SCENARIO=foreign"}
	_, err := run(t, all, binary)
	require.NoError(t, err)
	for value, words := range map[string]string{
		"some":                        "some cannot be given",
		"all_reduce,ncclCommInitRank": "ncclCommInitRank cannot be given",
		"unsupported,all":             "all cannot be given",
		"ncclRedOpCreatePreMulSum":    "ncclRedOpCreatePreMulSum cannot be given",
		" , ":                         "the list is empty",
	} {
		_, err := run(t, []string{"SHUNT_NCCL_FORWARD=" + value, "SCENARIO=refused", "WORDS=" + words}, binary)
		require.NoError(t, err, value)
	}
}
