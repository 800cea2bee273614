"""Expert dispatch: the words of a text, routed with all_to_all_v.

    python examples/experts/experts.py [FILE]            # 4 ranks, through `shunt run`
    shunt run -n 2 python examples/experts/experts.py [FILE]

Each rank reads its part of a text (this repository's LICENSE, if no file is
named), batch by batch. A gate gives every word to one of two experts per rank;
all_to_all_v takes the words' vectors there, the experts transform them, and a
second all_to_all_v brings them back, in the order of the text. Splits differ
with every batch. Rank 0 does the same work alone: every vector must be equal
to rounding and in its place. Exits 0 if they are.
"""

import os
import pathlib
import re
import sys
import zlib

# The matrices are small: threads of BLAS in every rank would only get in the way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402

import shunt  # noqa: E402

WIDTH = 32  # elements of a word's vector
BATCH = 96  # words of a rank in one round
EXPERTS_PER_RANK = 2
LICENSE = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"


def words_of(path):
    return re.findall(r"\w+|[^\w\s]", pathlib.Path(path).read_text(encoding="utf-8", errors="replace"))


def embed(words):
    """A vector for each word, the same wherever the word stands."""
    vectors = np.empty((len(words), WIDTH), "float32")
    for i, word in enumerate(words):
        vectors[i] = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(WIDTH, "float32")
    return vectors


class Experts:
    """A gate and the experts' weights, the same on every rank."""

    def __init__(self, count):
        random = np.random.default_rng(count)
        self.count = count
        self.gate = random.standard_normal((WIDTH, count))
        self.weights = random.standard_normal((count, WIDTH, WIDTH), "float32") / np.float32(np.sqrt(WIDTH))

    def choose(self, vectors):
        """The expert of each vector: the highest score, in float64 so that no
        choice hangs on the order of a sum."""
        return (vectors.astype("float64") @ self.gate).argmax(axis=1)

    def apply(self, expert, vectors):
        return np.tanh(vectors @ self.weights[expert])


def dispatch(comm, experts, vectors):
    """The vectors, each transformed by its expert, in their order."""
    chosen = experts.choose(vectors)
    order = np.argsort(chosen, kind="stable")  # by expert, and so by rank
    per_expert = np.bincount(chosen, minlength=experts.count).astype("int64")

    # Every rank learns how many words each of its experts gets from which rank.
    arriving = comm.all_to_all(per_expert, np.empty_like(per_expert)).reshape(comm.world, EXPERTS_PER_RANK)
    to = per_expert.reshape(comm.world, EXPERTS_PER_RANK).sum(axis=1) * WIDTH
    come = arriving.sum(axis=1) * WIDTH

    received = np.empty((int(come.sum()) // WIDTH, WIDTH), "float32")
    comm.all_to_all_v(np.ascontiguousarray(vectors[order]), to.tolist(), received, come.tolist())

    # What came is sorted by sender, then by expert.
    at = 0
    for sender in range(comm.world):
        for local in range(EXPERTS_PER_RANK):
            block = received[at:at + arriving[sender, local]]
            block[:] = experts.apply(comm.rank * EXPERTS_PER_RANK + local, block)
            at += len(block)

    back = np.empty_like(vectors)
    comm.all_to_all_v(received, come.tolist(), back, to.tolist())
    result = np.empty_like(back)
    result[order] = back
    return result, per_expert


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else LICENSE
    words = words_of(path)
    with shunt.init() as comm:
        experts = Experts(comm.world * EXPERTS_PER_RANK)
        bounds = [len(words) * r // comm.world for r in range(comm.world + 1)]
        mine = embed(words[bounds[comm.rank]:bounds[comm.rank + 1]])
        longest = max(b - a for a, b in zip(bounds, bounds[1:]))

        results, load = [np.empty((0, WIDTH), "float32")], np.zeros(experts.count, "int64")
        for begin in range(0, longest, BATCH):  # as many rounds on every rank; the last may be empty
            result, counts = dispatch(comm, experts, mine[begin:begin + BATCH])
            results.append(result)
            load += counts
        output = np.concatenate(results)

        lengths = [(b - a) * WIDTH for a, b in zip(bounds, bounds[1:])]
        whole = np.empty((len(words), WIDTH), "float32") if comm.rank == 0 else None
        comm.gather_v(output, whole, lengths if comm.rank == 0 else None)
        comm.all_reduce(load)
        good = np.ones(1, "int32")
        if comm.rank == 0:
            vectors = embed(words)
            chosen = experts.choose(vectors)
            want = np.empty_like(vectors)
            for expert in range(experts.count):
                want[chosen == expert] = experts.apply(expert, vectors[chosen == expert])
            wrong = int((~np.isclose(whole, want, rtol=1e-5, atol=1e-6).all(axis=1)).sum())
            balanced = bool((load == np.bincount(chosen, minlength=experts.count)).all())
            good[0] = wrong == 0 and balanced and len(words) > 0
            print(f"{len(words)} words of {pathlib.Path(path).name}, {comm.world} ranks, {experts.count} experts, "
                  f"{-(-longest // BATCH)} rounds; words per expert: {load.tolist()}")
            print(f"words that differ from one process: {wrong}")
            print("ok" if good[0] else "FAILED")
        comm.broadcast(good)
    return 0 if good[0] else 1


if __name__ == "__main__":
    if not any(name in os.environ
               for name in ("SHUNT_WORLD", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")):
        launcher = os.environ.get("SHUNT_COMMAND", "shunt")
        os.execvp(launcher, [launcher, "run", "-n", "4", sys.executable, *sys.argv])
    sys.exit(main())
