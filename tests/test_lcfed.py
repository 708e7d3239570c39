"""LCFed by hand, its identities, the low-rank cosine, and what it really sends and computes."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import close, federation, refused, run, simulation, two_layer_gradient, two_layers
from torch import nn

from cflkit.engine.memory import Memory
from cflkit.engine.sgd import SGD
from cflkit.methods import FedAvg, LCFed
from cflkit.methods.lcfed import closest, decompose, similarity_flops

MORE = [(np.array(x), np.array(y)) for x, y in (
    ([[3, 0], [0, 3]], [0, 1]), ([[4, 1], [1, 3]], [0, 1]), ([[3, 1], [0, 4]], [1, 0]), ([[5, 0], [0, 1]], [1, 0]),
    ([[1, 1], [0, 5]], [1, 1]), ([[2, 4]], [0]), ([[4, 2], [2, 2]], [1, 0]),
)]  # fmt: skip
SETTINGS = {"local": SGD(0.1, epochs=2, batch_size=10), "model": "mlp16"}


@pytest.mark.parametrize("average", ["all", "sampled"])
@pytest.mark.parametrize("start_from", ["own", "centre"])
@pytest.mark.parametrize("decomposition", ["svd", "pca"])
def test_rounds_with_an_embedding_and_a_low_rank_by_hand(start_from, average, decomposition):
    """Everything of Algorithm 1 at once, in NumPy; some devices are sampled, and some change their cluster."""
    fed, lr, moved = federation(*MORE), 0.3, 0
    method = LCFed(3, 0.3, 0.2, 3, decomposition, start_from, average)
    rig, memory = simulation(method, fed, seed=3, model=two_layers, local=SGD(lr, epochs=3)), Memory()
    server = method.start(rig.network(0, memory))
    w0 = rig.task.init()[0].numpy()
    sample = []
    for client in MORE:
        w = w0
        for _ in range(5):
            w = w - lr * two_layer_gradient(w, *client)
        sample.append(w)
    centred = np.array(sample) - (decomposition == "pca") * np.mean(sample, 0)
    M = np.linalg.svd(centred, full_matrices=False)[2][:3].T
    close(server["projection"] @ server["projection"].T, M @ M.T)
    own, centres, phi, assign = [w0] * 7, [w0] * 3, w0[:6], server["assign"].tolist()
    for t, sampled in enumerate([[0, 1, 2, 4, 5, 6], [0, 1, 3, 5], [1, 2, 3, 4, 6], [0, 2, 5, 6]], start=1):
        before = list(assign)
        for i in sampled:
            w = own[i] if start_from == "own" else centres[assign[i]]
            for _ in range(3):
                pull = 0.3 * (w - centres[assign[i]])
                pull[:6] += 0.2 * (w[:6] - phi)
                w = w - lr * (two_layer_gradient(w, *MORE[i]) + pull)
            own[i] = w
            cosine = [w @ M @ M.T @ c / np.linalg.norm(w @ M) / np.linalg.norm(c @ M) for c in centres]
            if t > 1:  # all centres are equal in round 1
                assert np.diff(np.sort(cosine)).min() > 1e-9
                assign[i] = int(np.argmax(cosine))  # new models, old centres
        chosen = range(7) if average == "all" else sampled
        members = [[own[i] for i in chosen if assign[i] == k] for k in range(3)]
        centres = [np.mean(m, 0) if m else centres[k] for k, m in enumerate(members)]
        phi = np.mean([own[i] for i in chosen], 0)[:6]
        server = method.round(server, torch.tensor(sampled), rig.network(t, memory))
        assert server["assign"].tolist() == assign
        for name, ours in {"models": own, "centres": centres, "phi": phi}.items():
            close(server[name], ours)
        close(server["z"], server["models"] @ server["projection"])
        close(server["z_centres"], server["centres"] @ server["projection"])  # by linearity
        assert server["server_flops"] == similarity_flops(len(sampled), 3, 3) + len(chosen) * 3
        moved += sum(a != b for a, b in zip(assign, before, strict=True))
    assert moved >= 3


def test_devices_keep_a_model_only_where_training_begins_with_it():
    for start_from, kept in (("own", 7), ("centre", 0)):
        memory = run(LCFed(k=2, rank=3, start_from=start_from), federation(*MORE), rounds=1).memory
        assert sum(memory.get("personal", i) is not None for i in range(7)) == kept


@pytest.mark.parametrize("average", ["all", "sampled"])
def test_an_empty_cluster_keeps_its_centre(average):
    method = LCFed(k=2, rank=3, average=average)
    rig = simulation(method, federation(*MORE))
    server = method.start(rig.network(0, Memory()))
    away = -server["centres"][0]  # nobody goes there
    server |= {"assign": torch.zeros(7, dtype=torch.int64), "centres": torch.stack([server["centres"][0], away]),
               "z_centres": torch.stack([server["z_centres"][0], -server["z_centres"][0]])}  # fmt: skip
    after = method.round(server, torch.tensor([1, 2, 6]), rig.network(1, Memory()))
    assert after["assign"].tolist() == [0] * 7 and not torch.equal(after["centres"][0], server["centres"][0])
    for name in ("centres", "z_centres"):
        assert torch.equal(after[name][1], server[name][1]) and after[name][1].any()


def test_a_device_leaves_its_cluster_only_for_a_closer_centre():
    points = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    centres = torch.tensor([[2.0, 0.0], [1.0, 1e-7], [0.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
    # cosines of the first point: 1, 1 - 5e-15, 0, 0; of the second: 0.7071068, + 7e-8, 0.7071068, 0.7071068
    assert closest(points, centres, torch.tensor([1, 3, 3, 0])).tolist() == [1, 1, 3, 2]
    assert closest(points, centres, torch.tensor([2, 0, 2, 1])).tolist() == [0, 1, 2, 2]
    assert closest(points.float(), centres.float(), torch.tensor([2, 0, 2, 1])).tolist() == [0, 1, 2, 2]


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_low_rank_cosines_choose_as_full_ones(seed, n):
    torch.manual_seed(seed)
    models = torch.randn(n, 9, dtype=torch.float64)
    M, now = decompose(models, n), torch.randint(3, (7,))
    close(M.T @ M, np.eye(n))
    points, centres = torch.randn(7, n).double() @ models, torch.randn(3, n).double() @ models
    chosen = closest(points @ M, centres @ M, now)
    assert torch.equal(chosen, closest(points, centres, now))  # D = rank: exact for vectors in the span
    scale = torch.tensor([0.1, 5, 70]).double()[:, None]
    assert torch.equal(chosen, closest(5 * points @ M, scale * centres @ M, now))
    square = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64))[0]
    anywhere = torch.randn(7, 9).double()  # D = P: exact for all
    assert torch.equal(closest(anywhere @ square, centres @ square, now), closest(anywhere, centres, now))


def test_traffic_and_work_are_counted(fed):
    method, rig = LCFed(k=3, rank=5), simulation(LCFed(k=3, rank=5), fed, **SETTINGS)
    p, phi = rig.model.size, rig.model.head.start
    start, first = run(method, fed, rounds=1, **SETTINGS).rounds
    assert (start["down"], start["up"]) == (12 * (p + p * 5), 12 * p)  # first steps, then M once
    assert (first["down"], first["up"]) == (12 * (p + phi), 12 * (p + 5))
    assert similarity_flops(12, 3, 5) == 2 * 12 * 3 * 5 + 2 * 15 * 5
    assert first["server_flops"] == similarity_flops(12, 3, 5) + 12 * 5  # and the mean of each cluster's z
    assert first["client_flops"] == 2 * 12 * p * 5
    assert start["server_flops"] == start["client_flops"] == 0
    full = run(LCFed(k=3, rank=None), fed, rounds=1, **SETTINGS).final
    assert (full["server_flops"], full["client_flops"]) == (similarity_flops(12, 3, p), 0)
    assert run(LCFed(k=3, rank=5, lam=0.0), fed, rounds=1, **SETTINGS).final["down"] == 12 * p  # no Phi
    assert similarity_flops(100, 10, 61706) / similarity_flops(100, 10, 50) == pytest.approx(61706 / 50)


def test_lenet_splits_at_any_layer(digits):
    from cflkit import federation as builders

    lenet = simulation(FedAvg(), builders.rotated(digits, clients=4, samples_per_client=4), model="lenet").model
    conv1, conv2, fc1, fc2 = 6 * 25 + 6, 16 * 6 * 25 + 16, 16 * 1 * 120 + 120, 120 * 84 + 84  # 8 x 8 pixels
    for split, phi in {"conv1": 0, "conv2": conv1, "fc1": conv1 + conv2, "fc2": conv1 + conv2 + fc1,
                       "last": conv1 + conv2 + fc1 + fc2, None: lenet.size}.items():  # fmt: skip
        assert LCFed(split=split).embedding(lenet) == slice(0, phi)
    assert LCFed(split="decision").embedding(lenet) == LCFed().embedding(lenet)


def test_a_split_may_name_a_block_of_layers(fed):
    def blocks():
        head = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 10))
        return nn.Sequential(OrderedDict(flat=nn.Flatten(), body=nn.Linear(64, 3), head=head))

    net = simulation(LCFed(k=2, rank=2, split="head"), fed, model=blocks, local=SGD(0.1)).model
    assert LCFed(split="head").embedding(net) == slice(0, 64 * 3 + 3)
    for split in ("fc1", "hea", ""):
        with pytest.raises(ValueError, match=rf"^split = '{split}': must be None, last or in \['body', 'head"):
            simulation(LCFed(k=2, rank=2, split=split), fed, model=blocks, local=SGD(0.1))


def test_nothing_and_everything_as_embedding(fed):
    """Without phi the global pull is none; with all of it, one cluster's pulls add up to mu + lam."""
    bare = run(LCFed(k=3, mu=0.2, lam=0.5, rank=3, split="hidden"), fed, rounds=2, **SETTINGS)
    none = run(LCFed(k=3, mu=0.2, lam=0.0, rank=3), fed, rounds=2, **SETTINGS)
    assert torch.equal(bare.server["models"], none.server["models"]) and bare.server["phi"].numel() == 0
    assert bare.rounds[1]["down"] == 12 * bare.server["initial"].numel()
    whole = run(LCFed(k=1, mu=0.2, lam=0.5, rank=3, split=None), fed, rounds=2, **SETTINGS).server
    summed = run(LCFed(k=1, mu=0.7, lam=0.0, rank=3), fed, rounds=2, **SETTINGS).server
    assert torch.equal(whole["phi"], whole["centres"][0])
    close(whole["models"], summed["models"])


def test_a_rank_beyond_the_sample_is_refused(fed):
    refused("rank = 50: must be at most 12 with these clients", simulation, LCFed(k=3), fed, **SETTINGS)
    refused(".*at most 11.*", simulation, LCFed(k=3, rank=12, decomposition="pca"), fed, **SETTINGS)
