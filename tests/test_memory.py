"""What clients keep between rounds, in memory and on disk."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cflkit.engine.memory import ChunkMemory, Memory

CPU = torch.device("cpu")


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(params=["ram", "disk"])
def memory(request, tmp_path):
    return Memory(None if request.param == "ram" else tmp_path / "memory")


def test_rows_come_back_as_they_were_put(memory):
    assert memory.get("head", 3) is None
    value = vector(1, 2)
    memory.put("head", 3, value, 1)
    value += 5  # what the client does with its copy afterwards is its own business
    memory.put("head", 4, vector(3, 4), 1)
    memory.put("body", 3, torch.tensor([7], dtype=torch.int64), 1)
    assert memory.get("head", 3).tolist() == [1, 2] and memory.get("head", 4).tolist() == [3, 4]
    assert memory.get("body", 3).dtype == torch.int64
    assert memory.get("body", 4) is None
    memory.put("head", 3, vector(9, 9), 2)
    assert memory.get("head", 3).tolist() == [9, 9]


def test_a_chunk_sees_its_own_rows_and_defaults(memory):
    chunk = ChunkMemory(memory, [5, 2], 1, CPU)
    assert chunk.get("v", vector(0, 1)).tolist() == [[0, 1], [0, 1]]
    chunk["v"] = torch.stack([vector(5, 5), vector(2, 2)])
    later = ChunkMemory(memory, [2, 3, 5], 2, CPU)
    own = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)
    assert later.get("v", own).tolist() == [[2, 2], [2, 3], [5, 5]]
    with pytest.raises(ValueError, match="3 rows"):
        later["v"] = own[:2]


puts = st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.floats(), st.sampled_from([4, 8]))


@given(st.lists(puts, max_size=12))
def test_disk_equals_memory_to_the_last_bit(tmp_path_factory, puts):
    held, kept = Memory(), Memory(tmp_path_factory.mktemp("memory"))
    for round, (name, client, value, width) in enumerate(puts):
        row = torch.tensor([value], dtype=torch.float64 if width == 8 else torch.float32)
        for memory in (held, kept):
            memory.put(name, client, row, round)
        kept.sweep()
    assert len(list(kept.folder.iterdir())) == len({(name, client) for name, client, *_ in puts})
    for name in "ab":
        for client in range(4):
            a, b = held.get(name, client), kept.get(name, client)
            assert (a is None and b is None) or (a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes())


def test_a_killed_round_leaves_nothing(memory):
    memory.put("v", 0, vector(1), 1)
    memory.put("v", 1, vector(2), 1)
    state = memory.state()
    memory.put("v", 0, vector(10), 2)  # the round that is killed: one old row replaced,
    memory.put("v", 2, vector(30), 2)  # one new,
    if memory.folder:
        assert {f.name for f in memory.folder.iterdir()} == {"v-0-1.npz", "v-0-2.npz", "v-1-1.npz", "v-2-2.npz"}
        (memory.folder / "v-1-2.npz").write_bytes(b"\x93NUM")  # and one half written
    again = Memory(memory.folder)
    again.restore(state)
    assert [again.get("v", c) for c in range(3)] == [vector(1), vector(2), None]
    if memory.folder:
        assert sorted(f.name for f in memory.folder.iterdir()) == ["v-0-1.npz", "v-1-1.npz"]
    state["v"][0] = None  # a checkpoint's lists are copies
    assert again.get("v", 0).item() == 1


def test_rows_of_another_run_are_refused(tmp_path):
    memory = Memory(tmp_path, "one")
    memory.put("v", 0, vector(1), 1)
    assert Memory(tmp_path, "one").folder == tmp_path and memory.get("v", 0).tolist() == [1]
    with pytest.raises(ValueError, match=r"must be the whole row of its client"):
        Memory(tmp_path, "other").restore(memory.state())
