"""What counts as measured: records of the present configuration, by seed, in the units of the papers."""

import json

import pytest
from made import record

from cflkit.workbook.claims import measured, schema
from cflkit.workbook.claims.measured import by_seed
from cflkit.workbook.runs import protocols, records, results

P, UNSEEN = "mdicfl_rotmnist_r100", "stocfl_femnist_unseen"  # in the second, 0.3 of the clients never train


def made(seed=0, moves=(), **final):
    """A record as far as `by_seed` looks at it; `moves` are (round, how many moved)."""
    rows = [{"round": t, "moved": m} for t, m in moves]
    return {"seed": seed, "config": {"rounds": 7}, "final": final, "rounds": [{"round": 0}, *rows]}


def changed(path, place, **values):
    """The record of a file, with other values in one of its parts."""
    whole = json.loads(path.read_text())
    inner = whole
    for part in place.split("/") if place else ():
        inner = inner[part]
    inner.update(values)
    return whole


# ---------------------------------------------------------------------- values
def test_a_row_shows_the_model_that_it_names_and_only_the_seeds_that_tables_state(tmp_path):
    assert measured.metric_of({"metric": "f1"}, {"model": "personal"}) == "personal_f1"
    assert measured.metric_of({"metric": "f1"}, {}) == "f1"
    stated = schema.planned()[P, "ifca"]
    for seed in (0, stated):
        record(tmp_path, P, "ifca", seed, accuracy=0.5)
    assert [*measured.cell(f"{P}/ifca", tmp_path).values] == [0]


def test_shares_are_in_percent_and_all_else_is_as_it_is():
    runs = [made(0, accuracy=0.5, ari=0.25, clusters=4), made(3, accuracy=1, ari=None, clusters=2)]
    assert by_seed(runs) == {0: 50.0, 3: 100}
    assert by_seed(runs, "ari") == {0: 0.25}  # a run without the number is left out
    assert by_seed(runs, "clusters") == {0: 4, 3: 2} and by_seed(runs, "nmi") == {}


def test_what_is_computed_of_a_run():
    """The last round with a move; clusters with a tenth of the clients or more; the last layer's weight."""
    wandering = made(1, [(1, 5), (2, 0), (3, 2), (4, 0)])
    assert by_seed([wandering, made(2, [(1, 0), (2, 0)])], "settled") == {1: 3, 2: 0}
    sizes = [60, 10, 9, 9, 9, 3], [181, 19], [90, 10]
    found = [*(made(seed, sizes=own) for seed, own in enumerate(sizes)), made(3)]
    assert by_seed(found, "main_clusters") == {0: 2, 1: 1, 2: 2}  # the last has no clusters
    assert by_seed([made(0, lam=[1.5, 0.25]), made(3, lam=[2.0]), made(4)], "lam") == {0: 0.25, 3: 2.0}


def test_a_number_has_two_decimals_its_spread_and_a_sign_where_asked():
    assert measured.number([4.0]) == "4.00" and measured.number([4.0], sign=True) == "+4.00"
    assert measured.number([1.0, 3.0]) == "2.00 ± 1.41"  # ddof 1: the root of 2
    assert measured.number([-1.0, -3.0], sign=True) == "-2.00 ± 1.41"


# ---------------------------------------------------------------------- which records count
def test_only_records_of_the_label_and_of_its_present_configuration_count(tmp_path):
    record(tmp_path, P, "ifca", 1, accuracy=0.9)
    record(tmp_path, P, "ifca", 0, accuracy=0.8)
    record(tmp_path, P, "fedavg", 5, accuracy=0.7)
    stale = record(tmp_path, P, "ifca", 2, accuracy=0.6)
    stale.write_text(json.dumps(changed(stale, "config/local", lr=0.123)))
    stale.rename(stale.with_name(f"{records.name(json.loads(stale.read_text()))}.json"))
    assert results.problems(tmp_path) == []
    assert by_seed(measured.measured(P, "ifca", tmp_path)) == {0: pytest.approx(80), 1: pytest.approx(90)}
    assert not measured.measured(P, "cfl", tmp_path)
    assert measured.cell(f"{P}/ifca", tmp_path).values == by_seed(measured.measured(P, "ifca", tmp_path))


def test_a_cell_is_a_protocol_a_label_and_a_metric(tmp_path):
    record(tmp_path, P, "ifca", 0, accuracy=0.8, ari=0.5)
    record(tmp_path, P, "ifca", 1, accuracy=0.1, ari=0.25, diverged=True)
    found = measured.cell(f"{P}/ifca/ari", tmp_path)
    assert found.values == {0: 0.5, 1: 0.25} and [run["label"] for run in found.runs] == ["ifca", "ifca"]
    assert found.gone == {1} and found.steady == {0: 0.5}
    assert measured.cell(f"{P}/cfl", tmp_path) == ([], {}, set(), {})
    for wrong, told in (("mdicfl/ifca", "protocol = 'mdicfl'"), (f"{P}/ifka", "label = 'ifka'"),
                        (f"{P}/ifca/arri", "metric = 'arri'")):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{told}: must be one of "):
            measured.cell(wrong, tmp_path)


EQUAL = "fesem_femnist_60_r60/fedavg-equal"  # with rounds of its own
TWICE = "fedcg_celeba_400/fedavg-twice"  # with a learning rate of its own
PLAIN, AWAY = f"{P}/fedavg", f"{UNSEEN}/fedavg"
LAST, NEVER = protocols.protocols()[P]["rounds"], protocols.protocols()[UNSEEN]["rounds"] + 1


@pytest.mark.parametrize(("name", "place", "same", "other"), [
    (EQUAL, "", {}, {"protocol": "nope"}), (EQUAL, "", {}, {"label": "fedavg"}),
    (EQUAL, "", {}, {"label": "nobody"}),
    (EQUAL, "config", {"evaluate_every": 3}, {"rounds": 60}),  # how often it is scored is left open
    (EQUAL, "config", {}, {"model": "mlp8"}), (EQUAL, "config/local", {}, {"lr": 9}),
    (EQUAL, "config/federation", {}, {"builder": "rotated"}), (EQUAL, "config/method", {}, {"name": "ifca"}),
    (TWICE, "config/local", {"lr": 0.06}, {"lr": 0.03}),
    ("fedcg_celeba_400/fedavg", "config/local", {}, {"lr": 0.06}),
    # what a protocol or a record leaves out has its default
    (PLAIN, "config/local", {"momentum": 0.0}, {"momentum": 0.9}),
    (PLAIN, "config/local", {"weight_decay": 0.0, "nesterov": False}, {"weight_decay": 1e-4}),
    (PLAIN, "config", {"dtype": "float32"}, {"dtype": "float64"}),
    (PLAIN, "config", {"participation": 1.0}, {"participation": 0.5}),
    (PLAIN, "config", {"personal": [100, None]}, {"personal": [5, None]}),
    (PLAIN, "config/federation", {"seed": 0, "pooled": False}, {"seed": 1}),
    (PLAIN, "config/federation", {"test_fraction": 0.2}, {"test_fraction": 0.5}),
    (PLAIN, "config/federation", {"digest": "abc"}, {"subset": [[0, 4]]}),
    (PLAIN, "config/method", {"weights": "n"}, {"weights": "uniform"}),
    (PLAIN, "config/method", {}, {"mu": 0.1}),
    # whoever comes late trains less; as many must never train as the protocol says
    (PLAIN, "config", {"arrival": None}, {"arrival": [1, LAST]}),
    (PLAIN, "config", {"arrival": [1, 1]}, {"arrival": [1, LAST + 1]}),
    *((AWAY, "config", {"arrival": [1] * 7 + [NEVER] * 3}, {"arrival": other}) for other in (
        [1] * 6 + [NEVER - 1, *[NEVER] * 3], [1] * 8 + [NEVER] * 2, [1] * 6 + [NEVER] * 4)),
])  # fmt: skip
def test_a_record_fits_by_protocol_label_and_every_setting(name, place, same, other, tmp_path):
    path = record(tmp_path, *name.split("/"), 0, accuracy=0.8)
    assert results.fits(changed(path, place, **same)) and not results.fits(changed(path, place, **other))


def rename(path, whole):
    path.unlink()
    target = path.with_name(f"{records.name(whole)}.json")
    target.write_text(json.dumps(whole))
    return target


def test_runs_of_one_seed_on_other_data_cannot_be_paired(tmp_path):
    for seed in (0, 1):
        for label, digest in (("ifca", "a"), ("fedavg", "a" if seed else "b")):
            path = record(tmp_path, P, label, seed, accuracy=0.8)
            rename(path, changed(path, "config/federation", digest=digest))
    (line,) = results.problems(tmp_path)
    assert line.startswith(f"{P}: fedavg-") and " and ifca-" in line
    assert line.endswith("-s0.json: the data of seed 0 differ, so they cannot be paired")
    assert list(by_seed(measured.measured(P, "ifca", tmp_path))) == [1]  # neither of seed 0 is believed
    stale = record(tmp_path, P, "cfl", 1, accuracy=0.8)
    whole = changed(stale, "config/federation", digest="c")
    whole["config"]["local"] = whole["config"]["local"] | {"lr": 9}
    rename(stale, whole)
    assert len(results.problems(tmp_path)) == 1  # what does not count spoils nothing


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path, monkeypatch):
    good = record(tmp_path, P, "ifca", 0, accuracy=0.8)
    (good.parent / "to-nothing-s1.json").symlink_to(tmp_path / "nothing")
    (good.parent / "a-folder-s1.json").mkdir()
    folder, link = results.problems(tmp_path)
    assert folder.startswith(f"{P}/a-folder-s1.json: ") and "Is a directory" in folder
    assert link.startswith(f"{P}/to-nothing-s1.json: ") and "No such file" in link
    assert by_seed(measured.measured(P, "ifca", tmp_path)) == {0: pytest.approx(80)}
