"""Every method on a GPU that is not there: nothing mixes, the numbers are the CPU's, and few things cross."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from every import ALL, every_variant
from torch import nn
from torch.func import grad, vmap
from transfers import CLIENTS, counted

from cflkit.engine.simulation import simulate
from cflkit.methods import FedAvg
from cflkit.testing.pretend import Pretended, gpu


# ---------------------------------------------------------------------- the device itself
def there(*shape, dtype=torch.float64):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel(), dtype=dtype).view(shape).to("cuda")


MISTAKES = {
    "sum": lambda: there(3) + torch.ones(3),
    "the CPU's number changed": lambda: torch.tensor(1.0).add_(there(1)[0]),
    "layer": lambda: F.linear(there(2, 3), torch.ones(4, 3, dtype=torch.float64)),
    "labels": lambda: F.cross_entropy(there(2, 3), torch.tensor([0, 1])),
    "cat": lambda: torch.cat([there(2), torch.ones(2)]),
    "lists": lambda: torch._foreach_add_([there(2)], [torch.ones(2)]),
    "out": lambda: torch.sum(there(2, 2), 0, out=torch.ones(2, dtype=torch.float64)),
    "the GPU's index": lambda: torch.ones(3)[there(2).long()],
    "the GPU's mask": lambda: torch.ones(2)[there(2) > 1],
    "values set": lambda: there(3).__setitem__(torch.tensor([0, 1]), torch.ones(2, dtype=torch.float64)),
    "equal": lambda: torch.equal(there(2), torch.ones(2, dtype=torch.float64)),
    "gradient": lambda: torch.autograd.grad((there(2).requires_grad_() * torch.ones(2)).sum(), there(2)),
    "in grad in vmap": lambda: vmap(grad(lambda v: (v * torch.ones(3)).sum()))(there(2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_device_refuses_to_mix(mistake):
    with gpu(), pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        MISTAKES[mistake]()


@pytest.mark.parametrize("asked", [lambda t: t.numpy(), np.asarray, lambda t: t.detach().numpy(), list])
def test_only_the_cpu_has_arrays(asked):
    with gpu(), pytest.raises(TypeError, match="can't convert cuda:0"):
        np.array(asked(there(2)))


# operation, numbers, transfers besides the last ``.cpu()``
RIGHT = {
    "to": (lambda: torch.tensor([1.0, 2.0]).to("cuda:0"), [1, 2], 1),
    "to and back": (lambda: there(2).cpu().to("cuda"), [1, 2], 3),
    "like another tensor": (lambda: torch.tensor([3.0]).to(there(2)), [3], 2),
    "made from numbers": (lambda: torch.tensor([1, 2], device="cuda") + 1, [2, 3], 1),
    "the CPU's number": (lambda: there(2) * torch.tensor(2.0), [2, 4], 1),
    "the CPU's index": (lambda: there(3)[torch.tensor([0, 2])], [1, 3], 2),
    "the GPU's index": (lambda: there(3)[there(1).long()], [2], 2),
    "a list": (lambda: there(3)[[0, 2]], [1, 3], 2),
    "a mask": (lambda: there(3)[there(3) > 1], [2, 3], 3),
    "set": (lambda: there(3).index_put((torch.tensor([0]),), there(1)), [1, 2, 3], 3),
    "a list set": (lambda: [t := there(3), t.__setitem__([0, 2], there(2))][0], [1, 2, 2], 3),
    "one masked": (lambda: [t := there(3), t.__setitem__(t > 1, 5.0)][0], [1, 5, 5], 1),
    "copied over": (lambda: there(2).copy_(torch.tensor([7.0, 8.0])), [7, 8], 2),
    "a number asked for": (lambda: there(2) * float(there(2)[1]), [2, 4], 3),
    "a list asked for": (lambda: torch.tensor(there(2).tolist()), [1, 2], 2),
    "a shape asked for": (lambda: torch.nonzero(there(2) > 1).flatten(), [1], 2),
    "repeats": (lambda: there(2).repeat_interleave(there(2).long()), [1, 2, 2], 3),
    "a view changed": (lambda: [t := there(2, 2), t[0].add_(1), t.view(-1)][2], [2, 3, 3, 4], 1),
}  # fmt: skip


@pytest.mark.parametrize("operation", RIGHT)
def test_the_device_computes_and_counts(operation):
    work, numbers, transfers = RIGHT[operation]
    with gpu() as device:
        found = work()
        assert device.transfers.total() == transfers
        assert found.cpu().tolist() == numbers


def test_modules_move_copy_and_train_there():
    torch.manual_seed(0)
    usual = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).double()
    x, y = torch.rand(5, 1, 4, 4, dtype=torch.float64), torch.arange(5) % 3
    expected = torch.autograd.grad(F.cross_entropy(usual(x), y), list(usual.parameters()))
    with gpu():
        moved = usual.to("cuda")
        parameters = list(moved.parameters())
        assert all(isinstance(p, Pretended) and isinstance(p, nn.Parameter) and p.is_cuda for p in parameters)
        found = torch.autograd.grad(F.cross_entropy(moved(x.to("cuda")), y.to("cuda")), parameters)
        for ours, theirs in zip(found, expected, strict=True):
            assert torch.equal(ours.cpu(), theirs)


def test_random_numbers_are_its_own():
    """What a method draws must not depend on the device; drawn there, it would."""
    with gpu() as device:
        torch.manual_seed(3)
        on_cpu, on_gpu = torch.rand(4), torch.rand(4, device="cuda")
        then = torch.rand(4)
        torch.manual_seed(3)
        again = torch.rand(4, device="cuda").cpu()
        assert torch.equal(again, on_gpu.cpu()) and not torch.equal(again, on_cpu)
        assert torch.equal(torch.rand(4), on_cpu) and torch.equal(torch.rand(4), then)
        before = device.random
        with torch.random.fork_rng(devices=["cuda"]):
            torch.rand(4, device="cuda")
        assert torch.equal(device.random, before)


def test_nothing_of_it_is_left():
    with gpu():
        tensor = there(2)
        assert torch.cuda.device_count() == 1
    with pytest.raises(RuntimeError, match="only within"):
        tensor + 1
    with gpu(), pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError
    assert torch.zeros(2, device="meta").is_meta


# ---------------------------------------------------------------------- methods on it
class Dropping(nn.Sequential):
    """The least network with dropout and running statistics."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10), nn.BatchNorm1d(10), nn.Linear(10, 10))


def test_a_network_that_draws_does_so_from_the_devices_numbers_alike_in_every_run(fed, settings_of_a_run):
    settings = settings_of_a_run | {"model": Dropping, "device": "cuda"}
    usual = simulate(FedAvg(), fed, **settings | {"device": "cpu"})
    with gpu():
        one, two = (simulate(FedAvg(), fed, **settings, chunk=chunk).server["model"].cpu() for chunk in (2, 5))
    assert torch.equal(one, two) and not torch.allclose(one, usual.server["model"])


class Careless(FedAvg):
    """Averages what came up on the CPU with what is on the device."""

    def round(self, server, clients, net):
        up = net.call(clients, self.client, {"model": server["model"]})
        return {"model": self.averaged(up["model"].dense())}

    def averaged(self, models):
        return torch.ones(len(models), dtype=models.dtype) @ models / len(models)


class MoreCareless(Careless):
    """Leaves PyTorch without bringing the numbers home."""

    def averaged(self, models):
        return torch.from_numpy(np.median(models.numpy(), axis=0))


@pytest.mark.parametrize("method", [Careless(), MoreCareless()])
def test_a_careless_method_runs_on_the_cpu_only(method, fed, settings_of_a_run):
    simulate(method, fed, **settings_of_a_run)
    with gpu(), pytest.raises((RuntimeError, TypeError), match=r"same device|Tensor\.cpu"):
        simulate(method, fed, **settings_of_a_run, device="cuda")


# ---------------------------------------------------------------------- what crosses
# where more may cross for more clients: in methods whose clients take turns
IN_TURN = {"stocfl chained": "engine/"}  # each goes on from the model of the one before
IN_TURN |= dict.fromkeys([v for v in ALL if v.startswith("fedcg")], "methods/graph_layers.py")  # counts each batch


def more(many, few):
    """Lines that make more cross for many clients than for few."""
    return {line: (few[phase][line], n) for phase in few for line, n in many[phase].items() if n > few[phase][line]}


@every_variant
def test_as_much_crosses_for_many_clients_as_for_few(variant, fed):
    few, many = (counted(variant, fed, clients) for clients in CLIENTS)
    print(f"{variant:22} {few['round'].total():5} transfers a round")
    assert few["round"].total() > 0
    grown = more(many, few)
    if variant in IN_TURN:
        assert grown and all(line.startswith(IN_TURN[variant]) for line in grown)
    else:
        assert grown == {}


@pytest.mark.parametrize("variant", ["ditto", "fedcg oracle"])  # clients in lock-step, and one after the other
def test_as_much_crosses_for_many_steps_as_for_few(variant, fed):
    few, many = (counted(variant, fed, 2, epochs=epochs) for epochs in (1, 3))
    assert all(line.startswith(IN_TURN.get(variant, "nowhere")) for line in more(many, few))


KEEPING = ("local", "ditto", "fedper", "scaffold", "fesem", "lcfed")  # what clients keep may lie in files


@pytest.mark.parametrize("variant", KEEPING)
def test_as_much_crosses_to_and_from_the_disk(variant, fed, tmp_path):
    few, many = (counted(variant, fed, clients, tmp_path / str(clients)) for clients in CLIENTS)
    assert more(many, few) == {}
