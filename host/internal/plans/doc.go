// Package plans finds the plan for a call: it asks the transports for algorithms, has the selector choose, has plans
// prepared and loaded into the executor, agrees about that with all ranks, keeps the plans by signature, and explains
// the choice.
//
// What lives here: the cache of plans, the agreement about a signature's first call, the exchange of bytes between
// endpoints, and whose plan a failed operation ran. What may not: running plans, memory of users, and loading
// transports. It does not import package host.
package plans
