package emulate

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant is the kernels' sources with a fault, and where it must show.
type mutant struct {
	name, file string
	edits      edits
	kernel     string // without the suffix of a dtype
	how
}

// edits are pairs: what is there once, and what it becomes.
type edits [][2]string

// how says which programs show a fault: the check's arguments, how many calls, and of which
// variant of the kernels.
type how struct {
	arguments string
	calls     int
	kernels   *variant
}

var (
	plain      = how{"", 6, standard}
	alone      = how{"--alone", 4, standard}
	oneBlock   = how{"--one-block", 4, standard}
	torn       = how{"--torn --fenced", 4, standard}
	lengths    = how{"--lengths", 6, looking}
	alike      = how{"", 6, looking} // lengths do not differ
	calls      = how{"--lengths", 6, asking}
	unhurried  = how{"--lengths", 6, standard} // that look seldom
	round      = how{"", 24, comingRound}
	impossible = how{"--impossible", 2, standard}
	aborted    = how{"--abort", 2, standard}
	asymmetric = how{"--asymmetric", 2, standard}
)

var mutants = []mutant{
	// What the protocols need.
	{"staged chunks are counted before they arrived", "staged.cuh", edits{{"      fence_system();\n      __syncwarp();\n", "      __syncwarp();\n"}}, "shunt_all_reduce_staged", plain},
	{"a stage is used again before its owner is done", "staged.cuh", edits{{"wait_taken(a, owner, n + 1 - SHUNT_STAGES, seen, fault)", "true"}}, "shunt_reduce_staged", plain},
	{"a chunk is whole that ends behind the last shard", "staged.cuh", edits{{"at + SHUNT_STAGE_BYTES(a.world) <= deed.length(deed.owners - 1)", "at + SHUNT_STAGE_BYTES(a.world) <= deed.length(0)"}}, "shunt_all_reduce_staged", plain},
	{"a chunk is whole whatever the results' memory is", "staged.cuh", edits{{"(kAny || straight) && is_whole", "is_whole"}}, "shunt_reduce_scatter_staged", plain},
	{"chunks that a rank does not combine are not counted", "staged.cuh", edits{{"  if (threadIdx.x < 32) tell_peers(a, SHUNT_OFF_TAKEN, next);\n", ""}}, "shunt_reduce_staged", plain},
	{"a stage is combined before it is filled", "staged.cuh", edits{{"wait_staged(a, source, n + 1, seen, fault)", "true"}}, "shunt_reduce_scatter_staged", plain},
	{"forwarded chunks are counted before they arrived", "broadcast.cu", edits{{"fence_system();  // release: the block's stores come before the counts", ""}}, "shunt_broadcast_direct", plain},
	{"forwarding does not wait", "broadcast.cu", edits{{"if (threadIdx.x == 0) met = wait_for(a, own(a) + SHUNT_OFF_FORWARD", "if (false) met = wait_for(a, own(a) + SHUNT_OFF_FORWARD"}}, "shunt_broadcast_direct", plain},
	{"a chain tells of chunks before they arrived", "chain.cuh", edits{{"    fence_system();\n", ""}}, "shunt_broadcast_chain", plain},
	{"a chain does not wait", "broadcast.cu", edits{{"wait_word(a, SHUNT_OFF_FORWARD, previous, base + k + 1, seen)", "true"}}, "shunt_broadcast_chain", plain},
	{"a block of threads is not joined before its stores are counted", "broadcast.cu", edits{{"      __syncthreads();\n      if (threadIdx.x == 0) {\n        fence_system();", "      if (threadIdx.x == 0) {\n        fence_system();"}}, "shunt_broadcast_direct", plain},
	{"a rank leaves before its peers have stored", "direct.cuh", edits{{"met = wait_for(a, done, e,", "if (false) met = wait_for(a, done, e,"}}, "shunt_all_gather_direct", plain},
	{"the end is told before the stores arrived", "direct.cuh", edits{{"store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DONE", "store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_DONE"}}, "shunt_all_to_all_direct", plain},
	{"what has landed is counted behind the next message", "all_to_all_v.cu", edits{{"  if (stored && p < a.world) fence_system();\n", ""}}, "shunt_all_to_all_v_long", alike},
	{"a lane is used beyond its credit", "channel.cuh", edits{{"if (sent_ + 1 - credit_ <= SHUNT_RING) return true;", "return true;"}}, "shunt_broadcast_ll128", plain},
	{"credit is given for what is not read", "channel.cuh", edits{{"store_relaxed(credit_word_, received_);", "store_relaxed(credit_word_, received_ + 4);"}}, "shunt_all_to_all_v", plain},
	{"LL slots have no parity", "ll.cuh", edits{{"(int(epoch) & 1) * world", "0 * world"}}, "shunt_all_gather_ll", plain},
	{"packets of threads that had nothing to send are left", "ll.cuh", edits{{"  ll_rewrite(a, epoch, flags);\n}", "}"}}, "shunt_all_gather_ll", round},
	{"packets of threads of short messages are left", "ll.cuh", edits{{"p < a.world && !sent; p++", "p < a.world && false; p++"}}, "shunt_all_gather_ll", round},
	{"packets are written anew once in a round of epochs of one parity", "ll.cuh", edits{{"(epoch & kEpoch / 2) >= 2", "(epoch & kEpoch / 2) >= 1"}}, "shunt_all_gather_ll", round},
	{"packets are written anew too seldom", "ll.cuh", edits{{"(epoch & kEpoch / 2) >= 2", "(epoch & (kEpoch * 4 + 3)) >= 2"}}, "shunt_all_gather_ll", round},
	{"LL128 has a ring of two", "ll128.cuh", edits{{"(int(unit) & (SHUNT_RING - 1)) * 512", "(int(unit) & 1) * 512"}}, "shunt_all_gather_ll128", plain},
	{"a root's units are not waited for", "two_shot.cuh", edits{{"if (!ll128_wait_all<0>(a, l, in, unit, lines)) return false;", `const int other = (a.root + 1) % a.world != a.rank ? (a.root + 1) % a.world : (a.root + 2) % a.world;
			if (!ll128_wait_each(a, l, [&](int s) { return in + ring(unit) + (s == a.root ? other : s) * kLL128SourceStride; }, [&](int) { return unit; }, [](Wait &wait, int s, u64 flag) { return wait.over(max(s, 0), flag); }, lines)) return false;
			if (apart) lines[a.root] = load_line(in + ring(unit) + a.root * kLL128SourceStride);`}}, "shunt_reduce_two_shot_ll128", plain},
	{"a root that owns nothing sends before it hears", "two_shot.cuh", edits{{"idle ? 0 : max(", "idle ? max(deal.mine - 1, int64_t(0)) : max("}}, "shunt_reduce_two_shot_ll128", plain},
	{"what engines deliver is combined before it is there", "delivered.cuh", edits{{"wait_delivered(a, number, p)", "true"}}, "shunt_all_reduce_delivered", plain},
	{"engines copy results where a peer has not combined", "symmetric.cu", edits{{"if (peer) met = wait_for(a, combined + p * 8", "if (false) met = wait_for(a, combined + p * 8"}}, "shunt_all_reduce_delivered", plain},
	{"engines copy results that are not there", "symmetric.cu", edits{{"if (p == 0) met = wait_for(a, combined + a.rank * 8", "if (false) met = wait_for(a, combined + a.rank * 8"}}, "shunt_all_reduce_delivered_any", plain},
	{"a long message is counted before it arrived", "all_to_all_v.cu", edits{{"store_release(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_LANDED", "store_relaxed(reinterpret_cast<void *>(a.region[p] + SHUNT_OFF_LANDED"}}, "shunt_all_to_all_v_long", plain},
	{"counts on the device are taken for bytes", "all_to_all_v.cu", edits{{"array % 2 == 0 ? count * v.element :", "array % 2 == 0 ? count :"}}, "shunt_all_to_all_v_on_device", plain},
	{"counts on the device are used before they are read", "all_to_all_v.cu", edits{{"  }\n  __syncthreads();\n}\n\n// The outcome", "  }\n}\n\n// The outcome"}}, "shunt_all_to_all_v_on_device", plain},
	{"messages on the device are all short", "all_to_all_v.cu", edits{{"is_long(a.world, count * v.element)", "false"}}, "shunt_all_to_all_v_on_device", plain},
	{"displacements on the device are not looked at", "all_to_all_v.cu", edits{{"== 0 ? packed : given;", "== 0 ? packed : packed;"}}, "shunt_all_to_all_v_on_device", plain},
	{"what was sent ahead is sent again", "all_to_all_v.cu", edits{{"sent[i] = ahead.units[i]", "sent[i] = 0"}}, "shunt_all_to_all_v_long", plain},
	{"turns leave out the last rows", "all_to_all_v.cu", edits{{" + u32(shared) - 1) / u32(shared)", ") / u32(shared)"}}, "shunt_all_to_all_v_long", plain},
	{"what is left behind whole vectors is dropped", "pull.cuh", edits{{"if (end >= length || block_index() != 0 || threadIdx.x != 0) return;", "return;"}}, "shunt_all_reduce_direct", plain},
	{"a round takes vectors that are not there", "pull.cuh", edits{{"auto there = [&](int u) { return at + u * step < bytes; };", "auto there = [&](int) { return true; };"}}, "shunt_all_reduce_direct", plain},
	{"every block begins where the first does", "exchange.cuh", edits{{"+ v.messages.send_displ[p];", "+ v.messages.send_displ[0];"}}, "shunt_reduce_scatter_v_ll", plain},
	{"every block is as long as the longest", "exchange.cuh", edits{{"return v.messages.send_count[p]; }", "return v.base.bytes; }"}}, "shunt_reduce_scatter_v_ll128", plain},
	{"displacements are everyone's", "pull.cuh", edits{{"place(int p) const { return messages.send_displ[p]; }", "place(int) const { return 0; }"}, {"UnequalBlocks{v}, 0, [&]", "UnequalBlocks{v}, messages.send_displ[v.base.rank], [&]"}}, "shunt_reduce_scatter_v_direct", plain},
	{"whole vectors between rounds are left out", "pull.cuh", edits{{"at < bytes; at += kVectors * step)", "at < bytes; at += (kVectors + 1) * step)"}}, "shunt_reduce_scatter_direct", plain},
	{"whole vectors of memory that is not aligned", "pull.cuh", edits{{" && ((m.send[0] | m.send[1] | at | to) & 15) == 0;", ";"}}, "shunt_reduce_scatter_direct", plain},

	// Memory that is not aligned.
	{"vectors that straddle do not", "pull.cuh", edits{{"if (straddles) pull_straddling", "if (false) pull_straddling"}}, "shunt_reduce_scatter_direct_any", plain},
	{"the ends of a shard are dropped", "pull.cuh", edits{{"if (room > 0) pull_reduced", "if (false) pull_reduced"}}, "shunt_all_reduce_direct_any", plain},
	{"a warp's last lane combines what it does not have", "pull.cuh", edits{{"return lane < 31 && at + u * step < bytes;", "return at + u * step < bytes;"}}, "shunt_all_reduce_direct_any", plain},
	{"the vector behind the last is not there", "pull.cuh", edits{{"if (kBatch > 1 || at <= bytes) lines", "if (kBatch > 1 || at < bytes) lines"}}, "shunt_reduce_scatter_direct_any", plain},
	{"ranks take each other for aligned alike", "pull.cuh", edits{{"return (differing & 15) == 0;", "return true;"}}, "shunt_all_reduce_direct_any", plain},
	{"vectors of two begin a byte late", "memory.cuh", edits{{"return straddle(p[0], p[shift == 0 ? 0 : 1], shift);", "return straddle(p[0], p[shift == 0 ? 0 : 1], shift == 0 ? 0 : (shift + 1) & 15);"}}, "shunt_reduce_scatter_direct_any", plain},
	{"what straddles is not put together", "memory.cuh", edits{{"p[shift == 0 ? 0 : 1]", "p[0]"}}, "shunt_all_gather_direct", plain},
	{"what misses alignment by eight bytes or more", "memory.cuh", edits{{"far = shift >= 8,", "far = false,"}}, "shunt_all_to_all_direct", plain},
	{"the bytes around whole vectors are not copied", "copy.cuh", edits{{"i < middle.outside(); i += threads)", "i < middle.begin; i += threads)"}}, "shunt_all_to_all_v_long", plain},
	{"a middle that is shorter than its ends", "memory.cuh", edits{{"if (end <= begin) begin = end = 0;", ""}}, "shunt_copy", plain},
	{"a row lacks its ends", "staged.cuh", edits{{"if (at < 16)\n    reinterpret_cast<Element", "if (false)\n    reinterpret_cast<Element"}}, "shunt_all_reduce_staged_any", plain},
	{"the ends of a row are those of its first lane", "staged.cuh", edits{{"const word2 end = of(holder);", "const word2 end = of(0);"}}, "shunt_reduce_scatter_staged_any", plain},
	{"a row of which every lane stores its own", "staged.cuh", edits{{"straddle(before, w, 16 - miss);", "w;"}}, "shunt_reduce_staged_any", plain},
	{"a row that ends behind the last shard", "staged.cuh", edits{{"SHUNT_STAGE_BYTES(a.world) + 16 <= deed.length(deed.owners - 1)", "SHUNT_STAGE_BYTES(a.world) + 16 <= deed.length(0)"}}, "shunt_all_reduce_staged_any", plain},
	{"a broadcast forwards past lines whatever its memory", "broadcast.cu", edits{{"return (all & 15) == 0;", "return a.recv % 16 == 0;"}}, "shunt_broadcast_direct", plain},
	{"blocks that only hold a place work too", "element.cuh", edits{{"if (shunt::spare_block()) return;", ""}}, "shunt_reduce_scatter_ll128", plain},

	// What rules 16 and 17 need, and lines in pieces.
	{"blocks past the grid have no turn", "all_to_all_v.cu", edits{{"at < a.world * blocks; at += block_count())", "at < a.world * blocks && at < int(block_count()); at += block_count())"}}, inTurns, plain},
	{"an owner forwards without credit", "broadcast.cu", edits{{"while (__any_sync(~0u, unit - credit[p] > SHUNT_RING)) {", "while (false) {"}}, "shunt_broadcast_ll128", plain},
	{"blocks of a broadcast past the grid have no turn", "broadcast.cu", edits{{"met && at < all; at += block_count())", "met && at < all && at < int(block_count()); at += block_count())"}}, "shunt_broadcast_ll128", plain},
	{"the ends of a pair are served by different blocks", "all_to_all_v.cu", edits{{"(at / blocks - a.rank + a.world) % a.world", "(a.rank + at / blocks) % a.world"}}, "shunt_all_to_all_v", oneBlock},
	{"fenced lines have no fence", "ll128.cuh", edits{{"      fence_system();  // release: the warp's words", "      // release: the warp's words"}}, "shunt_all_gather_ll128", torn},
	{"fenced lines are not loaded anew", "ll128.cuh", edits{{"bool again = l.fenced;", "bool again = false;"}}, "shunt_all_gather_ll128", torn},
	{"fenced lines of channels are not loaded anew", "channel.cuh", edits{{"    if (l.fenced) {\n      fence_unit();", "    if (false) {\n      fence_unit();"}}, "shunt_broadcast_ll128", torn},
	{"packets follow a fault", "exchange.cuh", edits{{"    if (epoch.lost) break;\n", ""}}, "shunt_all_gather_ll", alone},
	{"packets follow a wait that was given up", "exchange.cuh", edits{{"if (!ll_wait_all(a, e, flags, words)) break;", "(void)ll_wait_all(a, e, flags, words);"}}, "shunt_all_gather_ll", alone},
	{"units follow a fault", "exchange.cuh", edits{{"    if (round == 0 && __any_sync(~0u, epoch.lost)) return false;\n", ""}}, "shunt_all_gather_ll128", alone},
	{"a fault is not marked beside the epochs", "device.cuh", edits{{"      mark_epochs(a);\n", ""}}, "shunt_all_gather_ll128", alone},
	{"the mark of a fault is set for one block alone", "device.cuh", edits{{"i < SHUNT_CLASSES * SHUNT_MAX_BLOCKS; i++)", "i < 1; i++)"}}, "shunt_all_gather_ll128", alone},
	{"units follow a wait that was given up", "exchange.cuh", edits{{"met = ll128_wait_all<0>(a, l, in, base + round, lines);", "(void)ll128_wait_all<0>(a, l, in, base + round, lines);"}}, "shunt_all_gather_ll128", alone},
	{"results follow a fault", "two_shot.cuh", edits{{"    if (round == 0 && __any_sync(~0u, epoch.lost)) return false;\n", ""}}, "shunt_all_reduce_two_shot_ll128", alone},
	{"results of what never came", "two_shot.cuh", edits{{"if (!ll128_wait_all<0>(a, l, in, unit, lines)) return false;", "(void)ll128_wait_all<0>(a, l, in, unit, lines);"}}, "shunt_all_reduce_two_shot_ll128", alone},
	{"credit follows a fault", "all_to_all_v.cu", edits{{"  if (__any_sync(~0u, fault != SHUNT_FAULT_NONE)) return;\n", ""}}, "shunt_all_to_all_v", alone},
	{"credit follows a wait that was given up", "all_to_all_v.cu", edits{{"contradicted(a, peer, in.bytes);\n        })))\n      return;", "contradicted(a, peer, in.bytes);\n        })))\n      break;"}}, "shunt_all_to_all_v", alone},
	{"offers follow a fault", "all_to_all_v.cu", edits{{"if (__syncthreads_or(fault != SHUNT_FAULT_NONE)) return false;", "__syncthreads();"}}, "shunt_all_to_all_v_long", alone},
	{"an offer that never came", "all_to_all_v.cu", edits{{"met = offered || later;", "met = true;"}}, "shunt_all_to_all_v_long", alone},
	{"a root sends behind a fault", "broadcast.cu", edits{{"const u32 fault = earlier_fault(a);", "const u32 fault = 0;"}}, "shunt_broadcast_ll128", alone},
	{"an owner forwards what never came", "channel.cuh", edits{{"give_up.over(peer_, received_ + 1, in_vain))) return false;", "give_up.over(peer_, received_ + 1, in_vain))) return true;"}}, "shunt_broadcast_ll128", alone},
	{"an owner combines what never came", "fallback.cuh", edits{{"lines))\n      return;", "lines))\n      ;"}}, "shunt_reduce_ll128", alone},
	{"addresses of an earlier call", "direct.cuh", edits{{"        m.lost = 1;  // the words are those of an earlier call", "        m.send[p] = m.send[a.rank];"}}, "shunt_all_reduce_direct", alone},
	{"a direct call follows a fault", "direct.cuh", edits{{"if (fault != SHUNT_FAULT_NONE) m.lost = 1;", ""}}, "shunt_all_gather_direct", alone},
	{"the end is told of what was given up", "direct.cuh", edits{{"met = !__syncthreads_or(!met);", "__syncthreads();\n  met = true;"}}, "shunt_all_to_all_direct", alone},
	{"a fallback's faults are forgotten", "pull.cuh", edits{{"met = reduce_scatter_ll128_body<T>(a, blocks);", "(void)reduce_scatter_ll128_body<T>(a, blocks);"}}, "shunt_reduce_scatter_direct", alone},
	{"a chunk that never came is forwarded", "broadcast.cu", edits{{"if (__syncthreads_or(!met)) break;", "__syncthreads();\n      met = true;"}}, "shunt_broadcast_direct", alone},
	{"a chain forwards what never came", "broadcast.cu", edits{{"        if (!met) break;\n", "        met = true;\n"}}, "shunt_broadcast_chain", alone},
	{"a chain tells of what was given up", "chain.cuh", edits{{"if (__any_sync(~0u, done == kLost)) return;", "if (__any_sync(~0u, done == kLost)) done = limit;"}}, "shunt_broadcast_chain", alone},
	{"a stage is taken without leave", "staged.cuh", edits{{"const bool met = wait_taken(a, owner, n + 1 - SHUNT_STAGES, seen, fault);", "const bool met = wait_taken(a, owner, n + 1 - SHUNT_STAGES, seen, fault) || true;"}}, "shunt_reduce_scatter_staged", alone},
	{"stages that were given up are told", "staged.cuh", edits{{"if (__any_sync(~0u, staged == kLost)) break;", "if (staged == kLost) staged = last;"}}, "shunt_reduce_scatter_staged", alone},
	{"a chunk that never came is combined", "staged.cuh", edits{{"if (!wait_staged(a, source, n + 1, seen, fault)) return false;", "(void)wait_staged(a, source, n + 1, seen, fault);"}}, "shunt_reduce_scatter_staged", alone},
	{"chunks that were given up are told as taken", "staged.cuh", edits{{"if (__syncthreads_or(!met)) return false;", "__syncthreads();"}}, "shunt_reduce_staged", alone},
	{"blocks without chunks forget a fault", "staged.cuh", edits{{"bool met = share.chunks > 0 || earlier_fault(a) == SHUNT_FAULT_NONE;  // who has chunks looks behind the first loads\n  if (warp", "bool met = true;\n  if (warp"}}, "shunt_reduce_scatter_staged", alone},
	{"what engines never delivered is combined", "delivered.cuh", edits{{"if (__syncthreads_or(!met)) return;", "__syncthreads();"}}, "shunt_all_reduce_delivered", alone},
	{"deliveries are told behind a fault", "symmetric.cu", edits{{"if (a.root < kDeliveries && peer && met) {", "if (a.root < kDeliveries && peer) {"}}, "shunt_all_reduce_delivered", alone},
	{"a symmetric operation begins behind a fault", "symmetric.cu", edits{{"if (active && met) {", "if (active) {"}}, "shunt_symmetric_begin", alone},
	{"what is agreed holds at once", "width.cuh", edits{{"  if (atomicAdd(const_cast<u32 *>(&width->ended), 1u) != block_count() - 1) return;\n", ""}}, "shunt_all_reduce_staged", plain},
	{"blocks work as this rank wishes", "width.cuh", edits{{"u32(m.scalar[p])", "u32(m.scalar[a.rank])"}}, "shunt_all_reduce_staged", plain},
	{"a block ends before its threads know whether they work", "width.cuh", edits{{"  __syncthreads();  // all of the block's threads have read how many work\n", ""}}, "shunt_all_reduce_staged", plain},
	{"blocks beyond are waited for", "staged.cuh", edits{{"part(a, e, met, blocks);", "part(a, e, met);"}}, "shunt_all_reduce_staged", plain},
	{"blocks beyond take part", "staged.cuh", edits{{"if (block_index() < blocks) all_reduce", "if (true) all_reduce"}}, "shunt_all_reduce_staged", plain},
	{"all blocks fall back", "staged.cuh", edits{{"two_shot_ll128<T, false>(a, blocks)", "two_shot_ll128<T, false>(a)"}}, "shunt_all_reduce_staged", plain},
	{"a gate tells nobody", "barrier.cu", edits{{"  store_line(reinterpret_cast<void *>(a.region[p] + gates + a.rank * 16), word2{e, call});\n", ""}}, "shunt_reduce_scatter_staged", plain},
	{"a gate does not hear kernels that meet", "barrier.cu", edits{{"return load_packet(own(a) + SHUNT_OFF_HELLO + p * 64).y == ll_flag(e);", "return load_packet(own(a) + SHUNT_OFF_HELLO + p * 64).y == ~0u;"}}, "shunt_all_gather_direct", plain},
	{"a gate does not hear kernels that stage", "barrier.cu", edits{{"return reached(own(a) + SHUNT_OFF_STAGED + p * 8, e);", "return !e;"}}, "shunt_reduce_scatter_staged", plain},
	{"a gate does not hear lines", "barrier.cu", edits{{"return ((load_relaxed(first + kFirstFlag) ^ e) & kNumber) == 0;", "return first == nullptr;"}}, "shunt_all_gather_ll128", plain},
	{"a gate waits for the call behind its own", "barrier.cu", edits{{"(load_relaxed(word) - value) >= 0;", "(load_relaxed(word) - value) > 0;"}}, "shunt_reduce_scatter_staged", plain},
	{"a gate behind a fault", "barrier.cu", edits{{" || earlier_fault(a) != SHUNT_FAULT_NONE) return;", ") return;"}}, "shunt_all_gather_direct", alone},
	{"a barrier behind a fault", "barrier.cu", edits{{"if (threadIdx.x == 0 && !lost) {", "if (threadIdx.x == 0) {"}}, "shunt_barrier", alone},
	{"every kernel of a chain may begin", "device.cuh", edits{{"void begin() {\n#if", "void begin() {\n  if (block_count() <= kFewBlocks) let_next_begin();\n#if"}}, "shunt_all_gather_ll", plain},
	{"the next kernel may begin at once", "device.cuh", edits{{"if (block_count() <= kFewBlocks) let_next_begin();\n}", "let_next_begin();\n}"}}, "shunt_all_gather_ll", plain},
	{"a copy ends before its stores arrived", "one_sided.cu", edits{{"alone.\n  fence_system();\n", "alone.\n"}}, "shunt_copy", plain},
	{"a signal behind a fault", "one_sided.cu", edits{{"  const u64 value = *raised + 1;\n  if (fault != SHUNT_FAULT_NONE) return;\n  *raised = value;\n  // Release: puts of earlier", "  const u64 value = *raised + 1;\n  *raised = value;\n  // Release: puts of earlier"}}, "shunt_signal", alone},
	{"a window's signal behind a fault", "one_sided.cu", edits{{"  const u64 value = *raised + 1;\n  if (fault != SHUNT_FAULT_NONE) return;\n  *raised = value;\n  // Release: puts before", "  const u64 value = *raised + 1;\n  *raised = value;\n  // Release: puts before"}}, "shunt_window_signal", alone},

	// What lengths need: without it a message goes wrong, or no rank reports it, or one does without reason.
	{"flags have no length", "channel.cuh", edits{{"(unit & 0xFFFFFF) | u64(bytes) << 24", "unit"}}, "shunt_all_to_all_v", lengths},
	{"units have the length of the other direction", "all_to_all_v.cu", edits{{"Outlet(a, peer, lane, out.bytes)", "Outlet(a, peer, lane, in.bytes)"}}, "shunt_all_to_all_v", alike},
	{"units are not compared", "channel.cuh", edits{{"const u64 begun = other(slot);", "const u64 begun = 0;"}}, "shunt_broadcast_ll128", lengths},
	{"owners do not compare", "fallback.cuh", edits{{" && contradicted_by_any(a)", " && false"}}, "shunt_reduce_ll128", lengths},
	{"senders that wait for an offer are not asked", "channel.cuh", edits{{": other(own(a) + SHUNT_OFF_PENDING + peer * 8);", ": 0;"}}, "shunt_all_to_all_v_long", lengths},
	{"senders that wait for an offer do not say what for", "all_to_all_v.cu", edits{{"if (says && !said) store_release(pending, outgoing);", ""}}, "shunt_all_to_all_v_long", lengths},
	{"who waits for an offer does not look at what arrives", "all_to_all_v.cu", edits{{"return says && m.recv_count[p] > 0 && contradicted(a, p, m.recv_count[p]);", "return false;"}}, "shunt_all_to_all_v_long", lengths},
	{"what a sender has said stays", "all_to_all_v.cu", edits{{"if (met && said) store_relaxed(pending, 0);", ""}}, "shunt_all_to_all_v_long", alike},
	{"any offer will do", "all_to_all_v.cu", edits{{" && (ll_word(offer) == 0 || ll_word(terms) == outgoing);", ";"}}, "shunt_all_to_all_v_long", lengths},
	{"an offer is for a length, whatever came before", "all_to_all_v.cu", edits{{"ll_word(terms) == outgoing);", "bytes_of(ll_word(terms)) == bytes_of(outgoing));"}}, "shunt_all_to_all_v_long", unhurried},
	{"who waits for what lands does not compare", "all_to_all_v.cu", edits{{"if (other_length(a, p, bytes) == 0) return false;", "return false;"}}, "shunt_all_to_all_v_long", lengths},
	{"an offer of nothing must be seen", "all_to_all_v.cu", edits{{"later = is_later(offer);", "later = false;"}}, "shunt_all_to_all_v_long", alike},
	{"calls are not compared", "direct.cuh", edits{{"if (met && word[3] != call) {", "if (false) {"}}, "shunt_all_gather_direct", unhurried},
	{"calls differ in their length unseen", "call.cuh", edits{{" | (u64(bytes) & kLengthBits)", ""}}, "shunt_all_gather_direct", unhurried},
	{"blocks differ in their length unseen", "pull.cuh", edits{{"length(int p) const { return messages.send_count[p]; }", "length(int) const { return messages.send_count[0]; }"}}, "shunt_reduce_scatter_v_direct", unhurried},
	{"who hears of another call goes on", "direct.cuh", edits{{"tell_other_call(a, p, e, call, word[3]);\n        m.lost = 1;", "tell_other_call(a, p, e, call, word[3]);"}}, "shunt_broadcast_direct", unhurried},
	{"packets are of any call", "elsewhere.cuh", edits{{"u32(a.what) << kEpochBits | e, u32(bytes) << kEpochBits | e}", "e, e}"}}, "shunt_all_reduce_one_shot_ll", calls},
	{"packets are of any length", "elsewhere.cuh", edits{{"u32(bytes) << kEpochBits | e}", "e}"}}, "shunt_all_reduce_one_shot_ll", calls},
	{"packets of another call are waited for", "ll.cuh", edits{{"theirs == kNoCall ? mine : theirs}", "mine}"}}, "shunt_all_reduce_one_shot_ll", calls},
	{"lines are of any call", "ll128.cuh", edits{{" | part_of_call(call_word(a, a.bytes), (threadIdx.x & 31) >> 3)", ""}}, "shunt_all_gather_ll128", calls},
	{"lines are of any length", "elsewhere.cuh", edits{{": line == 1 ? call : call >> 24)", ": 0)"}}, "shunt_all_gather_ll128", calls},
	{"lines of another call are waited for", "ll128.cuh", edits{{"  if (peer >= 0) {\n    theirs = call_of_unit", "  if (false) {\n    theirs = call_of_unit"}}, "shunt_all_gather_ll128", calls},
	{"a meeting is of any call", "call.cuh", edits{{"return u64(a.what) << kWhatShift | ", "return "}}, "shunt_all_reduce_direct", calls},

	{"every lane compares", "all_to_all_v.cu", edits{{"return lane == 0 && in.bytes > 0", "return in.bytes > 0"}}, "shunt_all_to_all_v", alike},

	{"a timer that steps back is a timeout", "device.cuh", edits{{"(long long)(now - since) > (long long)limit", "now - since > limit"}}, "shunt_all_to_all_v", alike},
	{"a timer that steps back ends a stay", "symmetric.cu", edits{{"(long long)(nanoseconds() - since) > (long long)limit", "nanoseconds() - since > limit"}}, "shunt_symmetric_begin", asymmetric},
	{"lanes without a flag name rank 0", "ll128.cuh", edits{{"peer >= 0 ? peer : other", "max(peer, 0)"}}, "shunt_all_gather_ll128", alone},
	{"every wait looks at the watch page", "device.cuh", edits{{"now - at >= kWatch && atomicCAS(", "atomicCAS("}}, "shunt_reduce_scatter_staged", aborted},
	{"nobody looks at the watch page", "device.cuh", edits{{"now - at >= kWatch && ", "now - at >= kWatch && false && "}}, "shunt_reduce_scatter_staged", aborted},

	// What counts on the device that cannot be need.
	{"negative counts", "all_to_all_v.cu", edits{{"count >= 0 && ", ""}}, onDevice, impossible},
	{"negative displacements", "all_to_all_v.cu", edits{{"displ >= 0 && ", ""}}, onDevice, impossible},
	{"counts past the end", "all_to_all_v.cu", edits{{"count <= room && (count == 0", "(count == 0 || count > room"}}, onDevice, impossible},
	{"displacements past the end", "all_to_all_v.cu", edits{{" && (count == 0 || displ <= room - count)", ""}}, onDevice, impossible},
	{"a sum that wraps", "all_to_all_v.cu", edits{{"displ <= room - count", "displ + count <= room"}}, onDevice, impossible},
	{"what a rank sends itself", "all_to_all_v.cu", edits{{"!possible || differ", "!possible"}}, onDevice, impossible},
	{"receive counts", "all_to_all_v.cu", edits{{"= !used || (", "= !used || side == 1 || ("}}, onDevice, impossible},
	{"receive memory is shorter than it is", "all_to_all_v.cu", edits{{": v.recv_capacity;", ": v.recv_capacity / 2;"}}, onDevice, impossible},
	{"the last peer is named", "all_to_all_v.cu", edits{{"__ffs(peers) - 1", "(peers >= 8 ? 3 : peers >= 4 ? 2 : peers >= 2 ? 1 : 0)"}}, onDevice, impossible},
	{"displacements are not looked at", "all_to_all_v.cu", edits{{"== 0 ? packed : given;", "== 0 ? packed : packed;"}}, onDevice, impossible},
	{"the call goes on", "all_to_all_v.cu", edits{{"if (wrong == 0)\n", "\n"}, {"else if (lane == __ffs(wrong", "if (wrong != 0 && lane == __ffs(wrong"}, {"wrong != 0 ? Reading::kImpossible : ", ""}}, onDevice, impossible},
}

// apply returns a source of the mutant, or the edit that does not apply to it.
func (m mutant) apply(text string) (mutated, stale string) {
	for _, edit := range m.edits {
		if strings.Count(text, edit[0]) != 1 {
			return "", edit[0]
		}
		text = strings.Replace(text, edit[0], edit[1], 1)
	}
	return text, ""
}

// Tells in no time which mutants have to follow a change of the kernels.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(sources(), m.file))
			require.NoError(t, err)
			_, stale := m.apply(string(text))
			require.Empty(t, stale, "%s has this %d times, not once", m.file, strings.Count(string(text), stale))
		})
	}
}

// What the emulator must find, with one of some seeds at least, and does not say of the
// kernels as they are.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			original, _ := m.kernels.compiled(t)
			program, kernels := compile(t, Build{Once: true, Types: float32Only, Only: companions(m.kernel), Constants: m.kernels.Constants, Edit: func(name, text string) string {
				if name != m.file {
					return text
				}
				text, stale := m.apply(text)
				require.Empty(t, stale, "%s no longer has", m.file)
				return text
			}})
			called := []string{m.kernel}
			if m.kernel == "shunt_copy" { // what it brought is there for who has waited for a signal behind it
				called = append(called, "shunt_signal")
			}
			kernels = slices.DeleteFunc(kernels, func(k string) bool {
				return !slices.Contains(called, strings.TrimSuffix(k, "_float32"))
			})
			require.Len(t, kernels, len(called))
			for _, seed := range order(m.name) {
				arguments := append(strings.Fields(m.arguments), strconv.Itoa(2+seed%3), strconv.Itoa(seed), strconv.Itoa(m.calls))
				arguments = append(arguments, kernels...)
				if status, output := check(t.Context(), program, arguments...); status != 0 {
					t.Logf("found by seed %d: %.300s", seed, output)
					status, output = check(t.Context(), original, arguments...)
					require.Zero(t, status, "the kernel as it is: %s", output)
					return
				}
			}
			require.Fail(t, "not found by any seed")
		})
	}
}

// firstSeeds have found mutants that take others long. Where one no longer does, after a change of kernels, the others
// follow, and this is only a loss of time.
var firstSeeds = map[string]int{
	"who waits for what lands does not compare":                        3,
	"units follow a wait that was given up":                            3,
	"what is agreed holds at once":                                     13,
	"ranks take each other for aligned alike":                          6,
	"blocks beyond are waited for":                                     9,
	"a block ends before its threads know whether they work":           19,
	"a fallback's faults are forgotten":                                4,
	"blocks beyond take part":                                          9,
	"all blocks fall back":                                             9,
	"a row that ends behind the last shard":                            5,
	"a row lacks its ends":                                             8,
	"a broadcast forwards past lines whatever its memory":              25,
	"a stage is used again before its owner is done":                   13,
	"forwarded chunks are counted before they arrived":                 7,
	"a chain tells of chunks before they arrived":                      8,
	"a root's units are not waited for":                                8,
	"a long message is counted before it arrived":                      56,
	"what has landed is counted behind the next message":               129,
	"an offer is for a length, whatever came before":                   449,
	"who waits for an offer does not look at what arrives":             1389,
	"messages on the device are all short":                             6,
	"whole vectors between rounds are left out":                        72,
	"fenced lines are not loaded anew":                                 18,
	"packets of threads that had nothing to send are left":             31,
	"packets of threads of short messages are left":                    15,
	"packets are written anew once in a round of epochs of one parity": 29,
	"packets are written anew too seldom":                              15,
	"fenced lines of channels are not loaded anew":                     34,
	"an offer that never came":                                         16,
	"a root sends behind a fault":                                      16,
	"senders that wait for an offer are not asked":                     9,
	"senders that wait for an offer do not say what for":               9,
	"any offer will do":                                                9,
	"an offer of nothing must be seen":                                 101,
	"every lane compares":                                              8,
	"negative counts":                                                  25,
	"a sum that wraps":                                                 16,
	"what a rank sends itself":                                         6,
}

// order returns the seeds that a mutant is tried with.
func order(name string) []int {
	var list []int
	if first, ok := firstSeeds[name]; ok {
		list = append(list, first)
	}
	for seed := range 240 {
		list = append(list, seed)
	}
	return list
}

// companions returns a kernel and those that the check launches beside it.
func companions(kernel string) []string {
	switch {
	case strings.HasPrefix(kernel, "shunt_all_reduce_delivered"):
		return []string{"shunt_all_reduce_delivered", "shunt_all_reduce_delivered_any", "shunt_symmetric_begin", "shunt_symmetric_turn", "shunt_barrier", "shunt_copy"}
	case strings.HasPrefix(kernel, "shunt_all_to_all_v"):
		return []string{"shunt_all_to_all_v", inTurns, "shunt_all_to_all_v_long", onDevice}
	case strings.HasPrefix(kernel, "shunt_all_gather_"), strings.HasPrefix(kernel, "shunt_reduce_scatter_"),
		strings.HasPrefix(kernel, "shunt_all_to_all_"):
		return append([]string{kernel}, gateKernels...)
	case kernel == "shunt_signal":
		return []string{kernel, "shunt_wait"}
	case kernel == "shunt_copy":
		return []string{kernel, "shunt_signal", "shunt_wait"}
	case kernel == "shunt_window_signal":
		return []string{kernel, "shunt_window_wait"}
	}
	return []string{kernel}
}
