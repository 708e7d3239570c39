"""Messages, uploads and what they add up to."""

import threading
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cflkit.engine import network
from cflkit.engine.clients import Pixels
from cflkit.engine.memory import Memory
from cflkit.engine.network import Network
from cflkit.engine.rows import Pick, Rows

f64 = torch.float64


def parts_of(rows, cuts):
    """The same rows, arriving in chunks."""
    bounds = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    return Rows([rows[a:b] for a, b in pairwise(bounds)])


def random_rows(m, width, seed=0, dtype=f64):
    return torch.randn(m, width, generator=torch.Generator().manual_seed(seed), dtype=f64).to(dtype)


@st.composite
def grouped(draw):
    m, k = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    groups = torch.tensor(draw(st.lists(st.integers(0, k - 1), min_size=m, max_size=m)))
    weights = torch.tensor(draw(st.lists(st.integers(0, 50), min_size=m, max_size=m)))
    cuts = draw(st.lists(st.integers(1, 11), max_size=4))
    return groups, k, weights, cuts, random_rows(m, 5, draw(st.integers(0, 99)))


# ---------------------------------------------------------------------- means
ROWS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0], [7.0, 8.0]], dtype=f64)


def test_means_by_hand():
    rows = Rows([ROWS[:3], ROWS[3:]])
    assert rows.sum_by(torch.tensor([2, 0, 2, 0]), 3).tolist() == [[10, 12], [0, 0], [6, 2]]
    assert rows.mean().tolist() == [4.0, 3.5]
    assert rows.mean(torch.tensor([1, 0, 3, 0])).tolist() == [4.0, 0.5]
    groups = torch.tensor([2, 0, 2, 0])
    assert rows.mean_by(groups, 4).tolist() == [[5, 6], [0, 0], [3, 1], [0, 0]]
    keep = torch.full((4, 2), -1.0, dtype=f64)
    assert rows.mean_by(groups, 4, keep).tolist() == [[5, 6], [-1, -1], [3, 1], [-1, -1]]
    weights = torch.tensor([0, 1, 0, 3])  # group 2 has members, and no weight
    assert rows.mean_by(groups, 4, keep, weights).tolist() == [[6, 7], [-1, -1], [-1, -1], [-1, -1]]
    assert keep.tolist() == [[-1, -1]] * 4


def test_a_weightless_row_counts_for_nothing_even_if_it_is_not_finite():
    rows = Rows([torch.tensor([[1.0], [torch.nan], [3.0]])])
    assert rows.mean(torch.tensor([1, 0, 1])).tolist() == [2.0]


@given(grouped())
def test_every_sampled_client_counts_in_every_aggregate(case):
    """Conservation: group means times group weights add up to the weighted sum over all clients."""
    groups, k, weights, cuts, rows = case
    means = parts_of(rows, cuts).mean_by(groups, k, weights=weights)
    mass = torch.zeros(k, dtype=f64).index_add_(0, groups, weights.to(f64))
    expected = (weights[:, None] * rows).sum(0)
    torch.testing.assert_close((mass[:, None] * means).sum(0), expected, rtol=0, atol=1e-10)
    ones = parts_of(torch.ones(len(rows), 1, dtype=f64), cuts).mean_by(groups, k, weights=weights)[:, 0]
    torch.testing.assert_close(ones, (mass > 0).to(f64), rtol=0, atol=1e-15)
    for g in range(k):  # and each group's mean is that of its members alone
        if mass[g] > 0:
            mine = groups == g
            alone = (weights[mine, None] * rows[mine]).sum(0) / weights[mine].sum()
            torch.testing.assert_close(means[g], alone, rtol=0, atol=1e-12)


@given(grouped())
def test_chunks_change_no_bit_of_a_reduction(case):
    groups, k, weights, cuts, rows = case
    whole, parts = Rows([rows]), parts_of(rows, cuts)
    assert torch.equal(whole.mean_by(groups, k, weights=weights), parts.mean_by(groups, k, weights=weights))
    assert torch.equal(whole.mean(), parts.mean())
    assert torch.equal(whole.dense(), parts.dense())
    torch.testing.assert_close(whole.gram(), parts.gram(), rtol=0, atol=1e-12)
    assert Rows([rows.float()]).gram().dtype == f64


@given(grouped())
def test_rows_read_like_a_matrix(case):
    *_, cuts, rows = case
    found, m = parts_of(rows, cuts), len(rows)
    assert len(found) == m
    assert torch.equal(torch.stack(list(found)), rows)
    for i in (0, m - 1, -1):
        assert torch.equal(found[i], rows[i])
    for some in ([0, m - 1, 0], slice(1, None), torch.arange(m) % 2 == 0, slice(0, 0)):
        assert torch.equal(found[some], rows[some])
    torch.testing.assert_close(found.gram(), rows @ rows.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.products(rows[:2]), rows @ rows[:2].T, rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- messages
def make(chunk=2, clients=6, **workers):
    """A network whose clients hold their own number as data."""
    model = SimpleNamespace(device=torch.device("cpu"))
    task = SimpleNamespace(model=model, sizes=torch.arange(clients) + 10, seed=0)
    local = SimpleNamespace(round=4)
    return Network(task, Memory(), local, chunk, lambda ids: torch.tensor(ids), **workers)


def test_only_clients_that_have_arrived_can_be_reached():
    net = make(present=torch.tensor([0, 2, 3]))
    reached = []

    def work(down, memory, data, local):
        reached.extend(data.tolist())
        return {"model": data[:, None].double()}

    net.call(torch.tensor([0, 3]), work)
    net.chain(torch.tensor([2]), work, "model", torch.zeros(1))
    assert reached == [0, 3, 2]
    line = r"^arrival = 'after round 4 for clients \[1, 4\]': must be None for a method that reaches"
    for send in (lambda who: net.call(who, work), lambda who: net.chain(who, work, "model", torch.zeros(1))):
        with pytest.raises(ValueError, match=line):
            send(torch.tensor([0, 1, 4]))
    many = make(clients=9, present=torch.tensor([0]))
    with pytest.raises(ValueError, match=r"for clients \[1, 2, 3, 4, 5\]'"):
        many.call(torch.arange(9), work)
    assert reached == [0, 3, 2]


@settings(max_examples=20)
@given(st.integers(1, 9))
def test_clients_get_what_is_theirs_whatever_the_chunk(chunk):
    net, clients = make(chunk), torch.tensor([0, 2, 3, 5])
    table = ROWS[:2]
    seen = []

    def work(down, memory, data, local):
        seen.append(data.tolist())
        assert local.round == 4 and down["all"].tolist() == [1, 2, 3]
        assert torch.equal(down["own"], 10 * data)
        memory["kept"] = data[:, None].double()
        return {"x": down["pick"].dense() + data[:, None], "n": 2 * data}

    pick = Pick(table, torch.tensor([1, 0, 0, 1]))
    up = net.call(clients, work, {"all": torch.tensor([1, 2, 3])}, {"pick": pick, "own": 10 * clients})
    assert list(chain(*seen)) == [0, 2, 3, 5] and max(map(len, seen)) <= chunk
    assert set(up) == {"x", "n"} and len(up) == 2
    assert up["n"].dense().tolist() == [0, 4, 6, 10]
    assert torch.equal(up["x"].dense(), table[[1, 0, 0, 1]] + clients[:, None])
    assert up.clients is clients and up.sizes.tolist() == [10, 12, 13, 15]
    assert (net.down, net.up) == (4 * 3 + 4 * 2 + 4 * 1, 4 * 2 + 4 * 1)  # shared, a picked row, an integer
    recall = net.call(clients, lambda down, memory, *_: {"v": memory.get("kept", torch.zeros(1, dtype=f64))})
    assert recall["v"].dense().flatten().tolist() == [0, 2, 3, 5]
    assert (net.down, net.up) == (24, 12 + 4)


def test_what_clients_know_already_reaches_them_and_is_not_counted():
    net, known = make(), {"initial": torch.ones(100)}

    def work(down, memory, data, local):
        return {"sum": down["initial"].sum() + down["own"] + 0 * data}

    up = net.call(torch.tensor([3]), work, per_client={"own": torch.tensor([5])}, known=known)
    assert up["sum"].dense().tolist() == [105] and (net.down, net.up) == (1, 1)
    up = net.call(torch.arange(2), work, {"own": torch.tensor([7])}, known=known)
    assert up["sum"].dense().tolist() == [107, 107] and net.down == 3


def test_reaching_nobody_costs_nothing():
    net = make()
    none = torch.arange(0)
    up = net.call(none, lambda *_: {"x": 1}, {"all": torch.zeros(9)}, {"own": torch.zeros(0, 3)}, mean={"x": none})
    assert (len(up), net.down, net.up, len(up.sizes)) == (0, 0, 0, 0)


def test_a_chain_hands_on_what_each_client_returns():
    net, order = make(chunk=4), torch.tensor([4, 1, 3])

    def work(down, memory, data, local):
        assert len(data) == 1 and down["factor"].item() == 2
        return {"w": (down["factor"] * down["w"] + data)[None], "seen": down["w"][None]}

    up = net.chain(order, work, carry="w", start=torch.tensor([1.0, 0.0]), down={"factor": torch.tensor([2.0])})
    assert up["seen"].dense().tolist() == [[1, 0], [6, 4], [13, 9]]
    assert up["w"].dense().tolist() == [[6, 4], [13, 9], [29, 21]]  # 2 w + the client's number
    assert (net.down, net.up) == (3 * (2 + 1), 3 * (2 + 2))
    assert up.sizes.tolist() == [14, 11, 13]


@settings(max_examples=20)
@given(st.integers(1, 9), st.booleans())
def test_a_mean_made_on_arrival_is_the_rows_mean_to_the_last_bit(chunk, chained):
    clients, weights, sent = torch.tensor([0, 2, 3, 5]), torch.tensor([3, 0, 1, 7]), random_rows(6, 5)

    def work(down, memory, data, local):
        return {"w": sent[data], "v": sent[data] + down["w"] if chained else 2 * sent[data]}

    def exchange(mean):
        net = make(chunk)
        if chained:
            return net, net.chain(clients, work, carry="w", start=torch.zeros(5), mean=mean)
        return net, net.call(clients, work, mean=mean)

    (net, rows), (other, means) = exchange(None), exchange({"v": weights})
    assert len(means["v"]) == 1 and torch.equal(means["v"][0], rows["v"].mean(weights))
    assert torch.equal(means["w"].dense(), rows["w"].dense())  # what is not named comes as ever
    assert (net.up, net.down) == (other.up, other.down) and net.up == 4 * 10
    shares = exchange({"v": weights / 64.0})[1]["v"]  # of less than one together, and exact
    torch.testing.assert_close(shares[0], means["v"][0], rtol=1e-15, atol=0)
    with pytest.raises(ValueError, match=r"^weights of v = .*: must be finite, at least 0, and not all 0$"):
        exchange({"v": 0 * weights})


@pytest.mark.parametrize("chunk, workers", [(1, {}), (1, {"workers": 1}), (6, {"workers": 2})])
def test_one_worker_or_one_chunk_needs_no_thread(chunk, workers):
    threads = set()
    make(chunk, **workers).call(torch.arange(6), lambda *_: threads.add(threading.get_ident()) or {})
    assert threads == {threading.get_ident()}


def test_workers_share_the_chunks_and_answers_keep_the_order_of_the_clients(monkeypatch):
    meeting, threads = threading.Barrier(2, timeout=60), set()

    def work(down, memory, data, local):
        threads.add(threading.get_ident())
        meeting.wait()  # nobody gets on unless two are at work at once
        return {"x": 2 * data}

    limits = []  # each thread computes in one of PyTorch's, or two workers would want four cores
    monkeypatch.setattr(torch, "set_num_threads", limits.append)
    assert make(1, workers=2).call(torch.arange(6), work)["x"].dense().tolist() == [0, 2, 4, 6, 8, 10]
    assert set(limits) == {1}
    assert len(threads) == 2 and threading.get_ident() not in threads


@pytest.mark.parametrize(("clients", "chunk", "sizes"), [
    (0, 4, []), (4, 4, [4]), (5, 4, [2, 3]), (6, 4, [3, 3]), (6, 5, [3, 3]), (6, 1, [1] * 6),
])  # fmt: skip
def test_chunks_are_as_equal_as_can_be(clients, chunk, sizes):
    seen = []
    up = make(chunk).call(torch.arange(clients), lambda down, memory, data, local: seen.append(len(data)) or {})
    assert seen == sizes and len(up.clients) == clients


def test_the_servers_randomness_is_keyed_by_round_and_purpose():
    a, b = make(), make()
    assert a.rng("noise").random() == b.rng("noise").random() != b.rng("other").random()
    b.round = 5
    assert a.rng("noise").random() != b.rng("noise").random()


# ---------------------------------------------------------------------- large uploads
def mapped(folder):
    """How many files of that folder lie in this process's memory."""
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_uploads_beyond_the_limit_go_to_disk_and_change_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sent = random_rows(6, 10)

    def work(down, memory, data, local):
        return {"x": sent[data], "small": data}

    held = make().call(torch.arange(6), work)
    assert mapped(tmp_path) == 0
    monkeypatch.setattr(network, "SPILL_BYTES", 2 * 10 * 8)  # one chunk of two rows fits, the next does not
    net = make()
    spilled = net.call(torch.arange(6), work)
    assert mapped(tmp_path) == 2
    assert torch.equal(spilled["x"].dense(), held["x"].dense())
    assert torch.equal(spilled["x"].mean(), held["x"].mean())
    assert torch.equal(spilled["x"].gram(), held["x"].gram())
    assert torch.equal(spilled["x"][[5, 0]], sent[[5, 0]])
    assert net.up == 6 * 11
    last = spilled["x"].parts[-1]
    del spilled
    assert last.dense().tolist() == sent[4:].tolist() and mapped(tmp_path) == 1
    assert not list(tmp_path.iterdir())  # the files have no name, so that a killed run leaves nothing behind
    del last
    assert mapped(tmp_path) == 0


def test_a_full_disk_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", partial(open, "/dev/full", "wb"))
    monkeypatch.setattr(network, "SPILL_BYTES", 0)
    with pytest.raises(OSError, match=str(tmp_path)):
        make().call(torch.arange(2), lambda *_: {"x": random_rows(2, 5000)})


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.0, 2.0), (0.25, 1.0), ([0.5], [4.0])])
def test_pixels_are_scaled_then_normalised(mean, std):
    federation = SimpleNamespace(scale=4.0, mean=mean, std=std)
    model = SimpleNamespace(dtype=torch.float64, device=torch.device("cpu"))
    raw = torch.tensor([0, 2, 8], dtype=torch.uint8).view(1, 1, 1, 3)
    expected = (torch.tensor([0, 0.5, 2]).double() - torch.tensor(mean)) / torch.tensor(std)
    assert torch.equal(Pixels(federation, model)(raw).flatten(), expected.flatten())
