"""Who gains by a clustering: the clients of each cluster, as they are served by it and by another method."""

from collections.abc import Iterator
from pathlib import Path

from cflkit.workbook import records
from cflkit.workbook.measured import measured


def by_cluster(protocol: str, label: str, other: str, folder: Path = records.FOLDER) -> Iterator[list[str]]:
    """Set a method that groups clients beside another one, cluster by cluster, the largest first.

    Parameters
    ----------
    protocol : str
        Of both.
    label, other : str
        Of the two methods.
    folder : Path
        Where records are.

    Yields
    ------
    list of str
        Seed, size of the cluster, mean accuracy of its clients under either method [%], and what the cluster adds
        to the difference of the two means over all clients [points]. Of the seeds that both have, and of runs
        whose record has every client's cluster.
    """
    one, two = measured(protocol, label, folder), measured(protocol, other, folder)
    others = {run["seed"]: run["clients"]["accuracy"] for run in two.runs if "clients" in run} if two else {}
    for run in one.runs if one else ():
        own = run.get("clients", {})
        if run["seed"] not in others or "cluster" not in own:
            continue
        served = [*zip(own["cluster"], own["accuracy"], others[run["seed"]], strict=True)]
        members = {j: [pair for k, *pair in served if k == j] for j in set(own["cluster"])}
        for pairs in sorted(members.values(), key=len, reverse=True):
            ours, theirs = (sum(values) / len(values) for values in zip(*pairs, strict=True))
            adds = 100 * (ours - theirs) * len(pairs) / len(served)
            yield [f"{run['seed']}", f"{len(pairs)}", f"{100 * ours:.1f}", f"{100 * theirs:.1f}", f"{adds:+.2f}"]
