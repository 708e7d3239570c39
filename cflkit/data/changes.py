"""Federations that change: the same clients at each time step, with data of the group that they belong to then."""

from collections.abc import Sequence

import numpy as np

from cflkit.checks import Natural, Some, declared, require
from cflkit.data.federation import Federation


def time_steps(stock: Federation, groups: Sequence[Sequence[int]]) -> list[Federation]:
    """Deal out the clients of a federation to fewer clients that change.

    A client brings new data at each time step: those of the next client of its true cluster that is not taken yet.
    A time step therefore does not depend on later ones. With ``groups`` of two clients that trade places once,
    the stock needs two clients of each cluster::

        groups = [[0, 1], [1, 0]]
        stock = federation.rotated(pictures, clients=np.bincount(np.ravel(groups)).tolist(), degrees=(0, 90))
        before, after = time_steps(stock, groups)

    Parameters
    ----------
    stock : Federation
        Clients of known true clusters: of each cluster as many as `groups` names it, or more.
    groups : sequence of sequence of int
        ``(T, N)``: the true cluster of each client at each time step (FedDrift's change points, row by row).

    Returns
    -------
    list of Federation
        One a time step, with N clients each; ``cluster`` holds the row of `groups`.

    Raises
    ------
    ValueError
        If rows differ in length, or a cluster has too few clients.
    """
    declared("groups", groups, Some[Some[Natural]])
    wanted = np.array(groups[0]).size
    for row in groups:
        require(len(row) == wanted, "groups", list(map(len, groups)), "rows of one length, the number of clients")
    require(stock.cluster is not None, "stock", stock.name, "a federation whose true clusters are known")
    queue = [np.flatnonzero(stock.cluster.numpy() == k).tolist() for k in range(int(np.max(groups)) + 1)]
    for k, waiting in enumerate(queue):
        needed = sum(row.count(k) for row in map(list, groups))
        require(needed <= len(waiting), f"clients of cluster {k}", len(waiting), f"{needed} or more, one for each "
                "client and time step that is in it")  # fmt: skip
    return [stock.subset([queue[k].pop(0) for k in row]) for row in groups]
