"""Clients of each cluster beside what another method gives them, by hand."""

import json

from made import record

from cflkit.workbook import served

P = "fesem_femnist_60_r60"


def kept(folder, label, seed, clients):
    """A record with each client's accuracy, and its cluster where the method has such."""
    mean = sum(clients["accuracy"]) / len(clients["accuracy"])
    path = record(folder, P, label, seed, accuracy=mean)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2, "clients": clients}))


def test_each_cluster_and_what_it_adds_to_the_difference(tmp_path):
    kept(tmp_path, "fesem4", 0, {"accuracy": [0.5, 0.9, 0.1, 0.7], "cluster": [2, 0, 2, 2]})
    kept(tmp_path, "fedavg-equal", 0, {"accuracy": [0.6, 0.7, 0.4, 0.6]})
    kept(tmp_path, "fesem4", 1, {"accuracy": [0.5, 0.5], "cluster": [1, 1]})
    kept(tmp_path, "fesem4", 2, {"accuracy": [0.25, 0.5]})
    kept(tmp_path, "fedavg-equal", 2, {"accuracy": [0.5, 0.5]})
    lines = [*served.by_cluster(P, "fesem4", "fedavg-equal", tmp_path)]
    # (0.5 + 0.1 + 0.7) / 3 = 0.433, (0.6 + 0.4 + 0.6) / 3 = 0.533; a tenth less for 3 of 4, two tenths more for one
    assert lines == [["0", "3", "43.3", "53.3", "-7.50"], ["0", "1", "90.0", "70.0", "+5.00"]]


def test_without_either_there_is_no_table(tmp_path):
    assert [*served.by_cluster(P, "fesem4", "fedavg-equal", tmp_path)] == []
    kept(tmp_path, "fesem4", 0, {"accuracy": [0.5], "cluster": [0]})
    record(tmp_path, P, "fedavg-equal", 0, accuracy=0.5)  # of the first format, without clients
    assert [*served.by_cluster(P, "fesem4", "fedavg-equal", tmp_path)] == []
