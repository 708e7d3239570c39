"""What a server computes in a round of the comparison, for each of its methods: ``python -m benchmarks.server``.

The federation is that of the comparison: four rotations of the real MNIST, 80 clients, a LeNet, a fifth a round.
A round is timed on one core, once the first one is over; what passes in the clients' own work is taken away. So is
what a method does once before training, which has a column of its own.
"""

import statistics
import sys
import time

import torch

from benchmarks import measure
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network
from cflkit.workbook.runs import protocols

PROTOCOL = "common_rot_r20"
ROUNDS = 4


class Watched:
    """A clock that runs while the server works, and stands still while clients do."""

    def __init__(self):
        self.clients = 0.0

    def watch(self, net: Network) -> Network:
        """Let the clock see the calls of a network."""
        for name in ("call", "chain"):
            setattr(net, name, self._timed(getattr(net, name)))
        return net

    def _timed(self, call):
        def timed(*args, **kwargs):
            began = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.clients += time.process_time() - began

        return timed

    def seconds(self, work) -> tuple[object, float]:
        """What `work` gives, and the seconds that the server spent on it."""
        began, before = time.process_time(), self.clients
        found = work()
        return found, time.process_time() - began - (self.clients - before)


def server_work(label: str) -> dict:
    """Seconds of the server before training, and the median over rounds of those in a round: a row."""
    run, memory, clock = protocols.plan(PROTOCOL, label).simulation(progress=False), Memory(), Watched()
    server, before = clock.seconds(lambda: run.method.start(clock.watch(run.network(0, memory))))
    each = []
    for t in range(1, ROUNDS + 1):
        net, now = clock.watch(run.network(t, memory)), server
        server, spent = clock.seconds(lambda net=net, now=now, t=t: run.method.round(now, run.schedule[t - 1], net))
        each.append(spent)
    return {"label": label, "before": before, "round": statistics.median(each[1:])}


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, store it."""
    parser = measure.parser("server", __doc__)
    parser.add_argument("only", nargs="*", help="labels of the protocol; all if none is given")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    labels = options.only or [*protocols.protocols()[PROTOCOL]["methods"]]
    rows = [server_work(label) for label in labels]
    print(measure.show(rows))
    if not options.only:
        print(measure.write("server", measure.machine(), rows, options.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
