package rules

// Rule is one rule and what guards it.
type Rule struct {
	Number int
	Text   string
	Tests  []Test
}

// Test names a Go test function.
type Test struct {
	Package string // relative to the module
	Name    string
}

const (
	inRules       = "tests/internal/rules"
	inMemory      = "host/memory"
	inConformance = "tests/conformance"
	inShm         = "transports/shm"
	inAlgorithm   = "host/algorithm"
	inC99         = "internal/ctransport"
	inExecutor    = "host/executor"
	inDevice      = "tests/internal/device"
	inHost        = "host"
	inPool        = "host/internal/pool"
	inEmulate     = "transports/cudaipc/internal/emulate"
	inFragile     = "tests/internal/fragile"
)

// List is every rule, in order. Tests about graphs, streams and devices run on
// GPUs in memory where there are none.
var List = []Rule{
	{1, "Always signal, always wait, also for zero bytes.",
		[]Test{{inRules, "TestRule01AlwaysSignalAlwaysWait"}, {inShm, "TestRule01AlwaysSignalAlwaysWait"},
			{inAlgorithm, "TestRule01AlwaysSignalAlwaysWait"}, {inC99, "TestRule01AlwaysSignalAlwaysWait"},
			{inFragile, "TestMutantsAreFound"}}},
	{2, "Counters only grow, and live where the data is.",
		[]Test{{inRules, "TestRule02CountersOnlyGrow"}, {inShm, "TestRule02CountersOnlyGrow"},
			{inAlgorithm, "TestRule02CountersOnlyGrow"}, {inDevice, "TestGraphOfAHundredBetweenEagerCalls"},
			{inFragile, "TestMutantsAreFound"}}},
	{3, "Data before flag, at system scope.", []Test{{inRules, "TestRule03DataBeforeFlag"},
		{inFragile, "TestMutantsAreFound"}, {inConformance, "TestBuiltinShm"}, {inConformance, "TestBuiltinCudaipc"}}},
	{4, "One staging buffer for each field in flight.",
		[]Test{{inExecutor, "TestRule04ArgumentBlocksAreNotSharedByCallsInFlight"}}},
	{5, "What a graph captured stays.", []Test{{inExecutor, "TestRule05WhatAGraphCapturedStaysUntilItIsDestroyed"},
		{inExecutor, "TestRule05LaterWaitsForGraphsCapturedBefore"}, {inDevice, "TestGraphsAndCommunicatorsEndInEitherOrder"},
		{inHost, "TestGraphsKeepSymmetricMemoryMapped"}, {inPool, "TestGraphsKeepMemory"},
		{inHost, "TestGraphsKeepRegistrations"}}},
	{6, "Replays bypass the host.", []Test{{inExecutor, "TestRule06ReplaysBypassTheHost"},
		{inExecutor, "TestRule06CommandsAreInTheOrderOfStreams"},
		{inDevice, "TestGraphOfAHundredBetweenEagerCalls"}, {inHost, "TestDeviceCountsAreThoseOfEachReplay"}}},
	{7, "Under capture use only what can be captured.",
		[]Test{{inExecutor, "TestRule07NothingButStreamWorkUnderCapture"}, {inConformance, "TestBuiltinCudaipc"},
			{inHost, "TestNothingIsRegisteredUnderCapture"}}},
	{8, "One lock order.", []Test{{inRules, "TestRule08FreeingHoldsUpNoLaunch"},
		{inHost, "TestRule08ReversedLockOrderIsReported"}, {inHost, "TestAllocatorsOfManyThreads"},
		{inConformance, "TestBuiltinShm"}}},
	{9, "Handle exchange is batched.", []Test{{inMemory, "TestRule09BatchedHandleExchange"},
		{inHost, "TestNewMemoryAtAnAddressIsRegisteredAnew"}, {inFragile, "TestMutantsAreFound"}}},
	{10, "No local decision feeds a collective step.",
		[]Test{{inRules, "TestRule10LocalFailureIsEverybodys"}, {inMemory, "TestRule10NothingToShareStillTakesPart"},
			{inHost, "TestABrokenPromiseIsNamedOnAllRanks"}, {inHost, "TestARankWithoutSymmetricMemoryIsNamed"},
			{inHost, "TestInPlaceOnOneRankAloneIsNamed"}, {inHost, "TestCountsAreOnTheDeviceOnAllRanksOrNone"},
			{inFragile, "TestMutantsAreFound"}}},
	{11, "Cross-stream hand-overs are explicit.", []Test{{inExecutor, "TestRule11OperationsOfTwoStreamsAreOrdered"},
		{inExecutor, "TestRule11AStreamThatIsGoneIsWaitedForAndNotTouched"},
		{inExecutor, "TestRule11StreamsOfACaptureAreOrderedInTheGraph"}, {inExecutor, "TestRule11TracksAreForkedAndJoined"},
		{inDevice, "TestOperationsOnChangingStreams"}}},
	{12, "Every wait can be aborted.", []Test{{inRules, "TestRule12EveryWaitCanBeAborted"}}},
	{13, "Scratch is reused only under back-pressure.",
		[]Test{{inRules, "TestRule13ScratchIsReusedUnderBackPressure"}, {inShm, "TestRule13CreditsBoundScratchReuse"},
			{inAlgorithm, "TestRule13CreditsBoundScratchReuse"}, {inFragile, "TestMutantsAreFound"}}},
	{14, "Teardown never fails upward.", []Test{{inRules, "TestRule14TeardownNeverFailsUpward"}}},
	{15, "Cleanup on every path.", []Test{{inRules, "TestRule15CleanupOnEveryPath"}}},
	{16, "One resident block per GPU is enough.", []Test{{inEmulate, "TestRule16OneResidentBlockIsEnough"},
		{inEmulate, "TestRule16AmongManyRanks"}}},
	{17, "A kernel that has given up publishes nothing.", []Test{{inEmulate, "TestRule17WhoHasGivenUpPublishesNothing"}}},
	{18, "Freed memory goes back without a call.", []Test{{inHost, "TestRule18FreedMemoryIsUnmappedWithoutACall"},
		{inHost, "TestMemoryIsRegisteredOnFirstUse"}}},
	{19, "Ranks that disagree are told, always.", []Test{{inHost, "TestRanksThatDisagreeAreTold"},
		{inHost, "TestTwoRootsAreToldByTheNextCall"}, {inHost, "TestEveryCallIsCompared"},
		{inHost, "TestDeviceRanksThatDisagreeAreTold"}, {inHost, "TestRanksThatChooseDifferentlyAreTold"},
		{inEmulate, "TestCallsThatDifferAreTold"}, {inEmulate, "TestRanksInOtherKernelsAreTold"}}},
}

// Mutation is an edit that breaks a rule.
type Mutation struct {
	Rule  int
	Why   string // what the edit makes wrong
	File  string // relative to the module
	Old   string // occurs exactly once in the file
	New   string
	Guard Test // fails once the edit is made
}
