"""Data-parallel training on handwritten digits, checked against one process.

    python examples/digits/digits.py            # 4 ranks, through `shunt run`
    shunt run -n 2 python examples/digits/digits.py

Every rank holds the same network and a part of each batch; gradients are summed
over the ranks while the backward pass goes on. Rank 0 then trains alone on the
whole batches: the weights must be equal to rounding, and equal to the bit
between ranks. Exits 0 if they are.
"""

import os
import sys

# The matrices are small: threads of BLAS in every rank would only get in the way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import shunt  # noqa: E402

INPUT, HIDDEN, OUTPUT = 64, 48, 10
BATCH, EPOCHS, RATE, MOMENTUM = 60, 10, 0.1, 0.9
TRAIN = 1500  # of 1797 pictures; the rest measure the accuracy
TOLERANCE = 1e-9  # of float64 weights after 250 steps


def data():
    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(labels))
    pictures, labels = pictures[order] / 16.0, labels[order]
    return (pictures[:TRAIN], labels[:TRAIN]), (pictures[TRAIN:], labels[TRAIN:])


class Network:
    """64 - 48 - 10 with ReLU and softmax. Weights, gradients and momenta are flat
    arrays, first layer in front, so that one all_reduce takes a whole layer."""

    def __init__(self, seed=1):
        random = np.random.default_rng(seed)
        first, second = (INPUT + 1) * HIDDEN, (HIDDEN + 1) * OUTPUT
        self.weights = np.concatenate([
            random.normal(0, np.sqrt(2 / INPUT), first), random.normal(0, np.sqrt(2 / HIDDEN), second)])
        self.gradients = np.zeros(first + second)
        self.momenta = np.zeros(first + second)
        self.layers = slice(0, first), slice(first, first + second)

    def layer(self, flat, which):
        """A layer's weights, with the bias as last row."""
        return flat[self.layers[which]].reshape((INPUT + 1, HIDDEN) if which == 0 else (HIDDEN + 1, OUTPUT))

    def forward(self, x):
        w1, w2 = self.layer(self.weights, 0), self.layer(self.weights, 1)
        hidden = np.maximum(x @ w1[:-1] + w1[-1], 0)
        scores = hidden @ w2[:-1] + w2[-1]
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, odds / odds.sum(axis=1, keepdims=True)

    def backward(self, x, labels, ready):
        """Gradients summed over the pictures of x; ready(layer's gradients) is
        called as soon as a layer is done, the last layer first."""
        hidden, error = self.forward(x)
        error[np.arange(len(labels)), labels] -= 1
        g1, g2 = self.layer(self.gradients, 0), self.layer(self.gradients, 1)
        g2[:-1], g2[-1] = hidden.T @ error, error.sum(axis=0)
        ready(self.gradients[self.layers[1]])
        error = (error @ self.layer(self.weights, 1)[:-1].T) * (hidden > 0)
        g1[:-1], g1[-1] = x.T @ error, error.sum(axis=0)
        ready(self.gradients[self.layers[0]])

    def step(self, pictures):
        self.momenta *= MOMENTUM
        self.momenta -= RATE / pictures * self.gradients
        self.weights += self.momenta

    def accuracy(self, x, labels):
        return float((self.forward(x)[1].argmax(axis=1) == labels).mean())


def train(network, x, labels, comm=None):
    """Trains on all batches; with a communicator, on this rank's part of each."""
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(labels))  # the same on every rank
        for begin in range(0, len(labels), BATCH):
            batch = order[begin:begin + BATCH]
            if comm is None:
                network.backward(x[batch], labels[batch], lambda gradients: None)
            else:
                mine = np.array_split(batch, comm.world)[comm.rank]
                works = []
                network.backward(x[mine], labels[mine], lambda g: works.append(comm.start("all_reduce", g)))
                for work in works:
                    work.wait()
            network.step(len(batch))


def main():
    (x, labels), (test_x, test_labels) = data()
    with shunt.init() as comm:
        network = Network()
        train(network, x, labels, comm)

        high = comm.all_reduce(network.weights.copy(), op="max")
        low = comm.all_reduce(network.weights.copy(), op="min")
        equal = bool((high == low).all())
        good = np.ones(1, "int32")
        if comm.rank == 0:
            alone = Network()
            train(alone, x, labels)
            difference = float(np.abs(alone.weights - network.weights).max())
            accuracy = network.accuracy(test_x, test_labels)
            good[0] = equal and difference <= TOLERANCE and accuracy > 0.9
            print(f"{comm.world} ranks, {EPOCHS} epochs of {TRAIN} pictures: accuracy {accuracy:.1%} "
                  f"on {len(test_labels)} others")
            print(f"largest difference from one process: {difference:.1e} (at most {TOLERANCE:.0e}); "
                  f"ranks {'equal to the bit' if equal else 'DIFFER'}")
            print("ok" if good[0] else "FAILED")
        comm.broadcast(good)
    return 0 if good[0] else 1


if __name__ == "__main__":
    if not any(name in os.environ
               for name in ("SHUNT_WORLD", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")):
        launcher = os.environ.get("SHUNT_COMMAND", "shunt")
        os.execvp(launcher, [launcher, "run", "-n", "4", sys.executable, *sys.argv])
    sys.exit(main())
