package fragile

// Mutant is a way to break a rule in a plan.
type Mutant struct {
	Rule  int
	Name  string
	Why   string // what the plan does wrong
	Stuck bool   // ranks wait for what never comes, with or without delays
	Peers bool   // it is about the memory of peers, which ranks must be able to read
}

// Mutants lists the mutants that the tests of delays must find. What the rules say beyond
// plans, none can break:
//
//   - Rule 1: a reader of a channel that counts empty messages but does not wait for
//     them does no harm, as their slots hold nothing and credits bound the writer; nor
//     does one that does not wait for an empty offer, as nobody ends before everybody
//     has taken all. A call that is empty on all ranks moves nothing, so leaving it out
//     on all ranks alike is not wrong either: only a barrier synchronizes.
//   - Rule 2: that counters live in memory is where a plan has them; one that the host
//     numbered is a constant of the plan (constant_epoch), as nothing else of the host
//     reaches a plan.
//   - Rule 3: system scope and the fences of each block are the executor's, whose
//     signal releases and whose wait acquires, or a kernel's.
//   - Rule 9: handles, their keys and their exchange are the host's. A plan has
//     addresses of its peers' memory (space peer), for which the same holds, and which
//     the mutants break. That a rank imports a handle of its own cannot be said in a
//     plan, and an address of its own is right in one.
//   - Rule 10: a failure on one rank alone is the host's to agree on; what a plan can
//     do is decide by what only this rank knows.
var Mutants = []Mutant{
	{Rule: 1, Name: "zero_wait", Why: "peers with empty blocks are not waited for"},
	{Rule: 1, Name: "zero_signal", Why: "a rank with an empty block does not signal, and is not waited for"},
	{Rule: 1, Name: "zero_round", Why: "an empty operation is signalled but not waited for"},
	{Rule: 1, Name: "zero_message", Why: "a reader neither waits for empty messages nor counts them"},
	{Rule: 2, Name: "lost_counter", Why: "the counter is not stored, so that every operation has the same epochs"},
	{Rule: 2, Name: "reset_counter", Why: "the counter begins anew after each operation"},
	{Rule: 2, Name: "constant_epoch", Why: "the number of an operation is a constant of its plan"},
	{Rule: 2, Name: "wrapping_epoch", Why: "epochs fall back to 1 after every 8th"},
	{Rule: 2, Name: "lost_channel", Why: "a writer does not store how far it has come", Stuck: true},
	{Rule: 3, Name: "signal_first", Why: "the signal comes before the data that it tells of"},
	{Rule: 3, Name: "signal_first_channel", Why: "a message is signalled before it is written"},
	{Rule: 3, Name: "read_first", Why: "the data is read before the wait for it"},
	{Rule: 3, Name: "address_last", Why: "an offer is signalled before its address is stored", Peers: true},
	{Rule: 9, Name: "offer_withdrawn", Why: "an offer ends before its readers have taken the bytes", Peers: true},
	{Rule: 9, Name: "stale_address", Why: "the first address that a peer has offered is kept for good", Peers: true},
	{Rule: 9, Name: "fetch_first", Why: "a rank looks for its peers' offers before it makes its own", Stuck: true,
		Peers: true},
	{Rule: 10, Name: "local_alignment", Why: "the size of pieces follows from where the caller's memory is"},
	{Rule: 10, Name: "local_place", Why: "a rank that is in place leaves out a round"},
	{Rule: 10, Name: "local_total", Why: "the size of pieces follows from what this rank sends in all"},
	{Rule: 10, Name: "local_cache", Why: "a rank that has the same counts as before does not wait for its peers"},
	{Rule: 13, Name: "one_slot", Why: "one slot in place of two"},
	{Rule: 13, Name: "no_credit", Why: "a writer does not wait for its readers"},
	{Rule: 13, Name: "no_credit_broadcast", Why: "a root does not wait for its readers"},
	{Rule: 13, Name: "early_credit", Why: "a reader gives its slot back before it has read it"},
	{Rule: 13, Name: "late_look", Why: "a writer asks for credit half a ring too late"},
	{Rule: 13, Name: "one_reader", Why: "a root waits for one of its readers alone"},
	{Rule: 13, Name: "shared_slots", Why: "two classes of protocol share slots and count apart"},
}
