"""What strangers bring: images, validation data, methods; and what tells that a method is wrong."""

import json
import sys
import textwrap

import numpy as np
import pytest
import torch
from every import every_variant, make, model

from cflkit import federation, images
from cflkit.testing import promises
from cflkit.workbook import console

# ---------------------------------------------------------------------- images and validation
GREY = 10 * np.arange(6 * 4).reshape(6, 2, 2)


def test_images_of_what_is_in_memory():
    found = images.of(GREY, [0, 1, 2, 0, 1, 2], [7, 7, 7, 9, 9, 9], cluster=np.array([1, 1, 1, 0, 0, 0]))
    assert found.x.dtype == torch.uint8 and found.x.shape == (6, 1, 2, 2)
    assert found.x.flatten().tolist() == list(range(0, 240, 10)) and found.scale == 255
    assert found.classes == 3 and found.train.all() and found.name == "own"
    fed = federation.by_user(found, test="own", test_fraction=0.4)
    assert (fed.clients, fed.cluster.tolist(), fed.train.sizes.tolist()) == (2, [1, 0], [2, 2])
    colour = images.of(torch.rand(2, 3, 4, 5), torch.tensor([0, 1]), train=torch.tensor([True, False]), name="mine")
    assert colour.shape == (3, 4, 5) and colour.train.tolist() == [True, False] and colour.user is None


def test_a_federation_is_tested_on_its_validation_data_while_parameters_are_chosen(digits):
    fed = federation.rotated(digits, clients=8, samples_per_client=20, validation_fraction=0.25)
    choosing = fed.validating()
    assert torch.equal(choosing.test.index, fed.validation.index)
    assert choosing.train is fed.train and choosing.validation is None
    assert choosing.test_of.tolist() == list(range(8)) and choosing.test.sizes.tolist() == [5] * 8
    for part in (choosing.subset([5, 7, 2]), fed.subset([5, 7, 2]).validating()):
        assert part.test_of.tolist() == [1, 2, 0] and torch.equal(part.test.rows(1)[0], fed.validation.rows(5)[0])
        again = federation.build(json.loads(json.dumps(part.config)))
        assert torch.equal(again.test.index, part.test.index) and again.test_of.tolist() == [1, 2, 0]
    with pytest.raises(ValueError, match=r"^validation = None: must be set apart: give the builder"):
        choosing.validating()


# ---------------------------------------------------------------------- the package's own methods
@pytest.mark.parametrize("promise", promises.PROMISES, ids=lambda promise: promise.__name__)
@every_variant
def test_every_method_keeps_every_promise(variant, promise, fed, settings_of_a_run):
    promise(make(variant, fed), fed, settings_of_a_run | {"model": model(variant)})


# ---------------------------------------------------------------------- a stranger's method
RIGHT = """
    from dataclasses import dataclass

    import torch

    from cflkit.checks import Positive
    from cflkit.methods.base import Method, one_for_all

    SEEN = [0.0]


    @dataclass(frozen=True)
    class Mine(Method):
        '''Move the global model to the mean of the clients' models.'''

        step: Positive = 1.0
        name = "mine"

        def start(self, net):
            return {"model": net.task.init()[0]}

        def round(self, server, clients, net):
            up = net.call(clients, self.client, down={"model": server["model"]})
            return {"model": server["model"].lerp(up["model"].mean(), self.step)}

        def client(self, down, memory, data, local):
            return {"model": local.sgd(down["model"], data)}

        def serve(self, server, clients, net):
            return one_for_all(server["model"], clients)
"""
WRONG = {  # each breaks one promise: what is replaced, by what, and what is said of it
    "leaves_the_old_state_alone": (
        'return {"model": server["model"].lerp(up["model"].mean(), self.step)}',
        'return {"model": server["model"].lerp_(up["model"].mean(), self.step)}',
        "a round changed the state that it was given",
    ),
    "sees_no_test_image": (
        'up["model"].mean(), self.step)}',
        'up["model"].mean() + SEEN[0], self.step)}\n\n'
        "        def predict(self, model, vector, x):\n"
        "            SEEN[0] = float(x.mean())\n"
        "            return model.forward(vector, x)",
        "the server's state depends on test images",
    ),
    "is_moved_by_every_sampled_client": (
        'up["model"].mean()', 'up["model"][:-1].mean(0)', "was sampled, and its data changed nothing",
    ),
    "chunks_and_trainers_change_rounding_only": (
        'return {"model": local.sgd(down["model"], data)}',
        'rows = local.sgd(down["model"], data).dense()\n            return {"model": rows + rows.max(0).values}',
        "'model' depends on the chunk or the trainer (lean)",
    ),
    "workers_change_no_bit": (
        'return {"model": local.sgd(down["model"], data)}',
        'SEEN[0] += 1.0\n            return {"model": local.sgd(down["model"], data)}\n\n'
        "        def log(self, server):\n            return {'exchanges': SEEN[0]}",
        "the rounds differ",
    ),
    "survives_a_kill": (
        'up = net.call(clients, self.client, down={"model": server["model"]})',
        'SEEN[0] += 1 - 2 * (SEEN[0] > 0)\n'
        '            up = net.call(clients, self.client, down={"model": server["model"] + SEEN[0]})',
        "killed and started again: the server differs",
    ),
    "runs_on_a_gpu": ('up["model"].mean()', 'torch.from_numpy(up["model"].mean().numpy())', "Tensor.cpu"),
}  # fmt: skip


def written(folder, source=RIGHT):
    file = folder / "mine.py"
    file.write_text(textwrap.dedent(source))
    return file


def test_a_strangers_method_keeps_every_promise(tmp_path):
    (kind,) = promises.methods_of(written(tmp_path))
    found = list(promises.check(kind))
    assert [line for _, line in found] == [""] * len(promises.PROMISES)
    assert found[0][0].startswith("A round returns a new server state")


def test_every_promise_has_a_method_that_breaks_it():
    assert set(WRONG) == {promise.__name__ for promise in promises.PROMISES}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_a_promise_is_found(name, tmp_path, monkeypatch):
    right, wrong, said = WRONG[name]
    assert right in RIGHT
    (kind,) = promises.methods_of(written(tmp_path, RIGHT.replace(right, wrong, 1)))
    monkeypatch.setattr(promises, "PROMISES", (getattr(promises, name),))
    ((_, broken),) = promises.check(kind)
    assert said in broken


@pytest.mark.parametrize(("source", "line"), [
    ("from cflkit.methods import FedAvg", "must be one that defines a method: a Method with a name"),
    ("import nowhere", "must be one that can be imported (mine.py:1: ModuleNotFoundError: No module named"),
    ("import os\n\nif os\n", "must be one that can be imported (mine.py:3: SyntaxError: expected ':'"),
    (RIGHT.replace("Positive = 1.0", "Positive"), "step = None: must be given a default, with which"),
])  # fmt: skip
def test_what_cannot_be_tried_is_refused_in_one_line(source, line, tmp_path, capsys):
    assert console.main(["check", str(written(tmp_path, source))]) == 2
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    assert console.main(["check", str(tmp_path / "nowhere.py")]) == 2
    assert "nowhere.py: no such file" in capsys.readouterr().err


def test_the_command_says_which_promises_hold(tmp_path, monkeypatch, capsys):
    def holds(*_):
        """It holds."""

    def fails(*_):
        """It fails."""
        raise KeyError("theta")

    monkeypatch.setattr(promises, "PROMISES", (holds, fails))
    file = str(written(tmp_path))
    assert console.main(["check", file]) == 1
    lines = ["mine.py: Mine", "  ok     It holds.", "  BROKEN It fails.", "         mine.py:12: KeyError: 'theta'"]
    assert capsys.readouterr().out.splitlines()[:-1] == lines
    monkeypatch.setattr(promises, "PROMISES", (holds,))
    assert console.main(["check", file]) == 0


ERRORS = [  # what is replaced in the method's code, by what, where that stands and what is said
    ('up["model"].mean()', 'up["theta"].mean()', 24, "KeyError: 'theta'"),
    ('local.sgd(down["model"], data)', "[1, 2][clients]", 27, "NameError: name 'clients' is not defined"),
    ('up["model"].mean()', 'server["model"]', 12, "client 2 was sampled, and its data changed nothing"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "said"), ERRORS, ids=[error[1] for error in ERRORS])
def test_what_is_broken_has_a_line(right, wrong, line, said, tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "PROMISES", (promises.is_moved_by_every_sampled_client,))
    (kind,) = promises.methods_of(written(tmp_path, RIGHT.replace(right, wrong, 1)))
    ((_, broken),) = promises.check(kind)
    assert broken == f"mine.py:{line}: {said}"


BRANCHED = """
        def serve(self, server, clients, net):
            if net.round > 100:

                def later(x):
                    return x  # a comment, and then

                server = {"model": (
                    later(server["model"])
                )}
            elif self.step > 1:
                return one_for_all(self.step * server["model"], clients)
            return one_for_all(server["model"], clients)  # [x for x in y]


    @dataclass(frozen=True)
    class Longer(Mine):
        step: Positive = 1.5
        name = "longer"
"""


def test_lines_that_no_promise_reaches_are_listed(tmp_path, monkeypatch, capsys):
    """Whatever thread they run in, and whether the file is given by a long way or a short one."""
    monkeypatch.setattr(promises, "PROMISES", (promises.workers_change_no_bit,))
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, RIGHT.rpartition("\n        def serve")[0] + "\n" + BRANCHED)
    text, before = file.read_text().splitlines(), sys.gettrace()
    first = next(n for n, line in enumerate(text, 1) if "def later" in line)
    assert console.main(["check", f"../{tmp_path.name}/mine.py"]) == 0
    said = capsys.readouterr().out.splitlines()
    line = f"mine.py: lines {first}-{first + 4} never ran: give defaults, or a subclass, that reach them"
    assert said[0] == "mine.py: Mine" and said[2] == "mine.py: Longer" and said[-1] == line
    assert sys.gettrace() is before
    file.write_text("\n".join(text).partition("@dataclass(frozen=True)\nclass Longer")[0])
    console.main(["check", "mine.py"])
    assert f"lines {first}-{first + 4}, {first + 7} never ran" in capsys.readouterr().out
    written(tmp_path)
    console.main(["check", "mine.py"])
    assert "never ran" not in capsys.readouterr().out
