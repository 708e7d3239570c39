"""Every chapter runs at the edges of the limits that its parameters declare."""

from typing import Literal, get_args, get_origin

import pytest

from cflkit.workbook.chapters import notebooks, parameters, rerun

# Together these reach every end of an interval and every choice; but not the most rounds, which only take hours,
# nor the largest seed. An open end is approached.
EDGES = {
    "baselines": [
        {"rounds": 8, "participation": 0.01, "per_cluster": 5, "alpha": 0.1},
        {"rounds": 8, "participation": 1.0, "per_cluster": 20, "alpha": 1000.0},
    ],
    "fedcg": [
        {"domains": 2, "beta": 0.0, "refresh": 1, "layers": "last", "rounds": 2},
        {"domains": 16, "beta": 1.0, "refresh": 200, "layers": "all", "rounds": 2},
    ],
    "comparison": [{"share": "fifth", "seeds": 3}, {"share": "all", "seeds": 5}],
    "drift": [
        {"rounds": 2, "size": 20, "delta": 0.01, "scaling": 0.5, "tau": -1.0},
        {"rounds": 2, "size": 300, "delta": 10.0, "scaling": 5.0, "tau": 1.0},
    ],
    "fesem": [
        {"k": 2, "lam": 0.0, "sub": "all", "init": "kmeans", "rounds": 4},
        {"k": 8, "lam": 4.0, "sub": "last", "init": "random", "rounds": 4},
    ],
    "foundations": [
        {"clients": 8, "participation": 0.01, "rounds": 8, "epochs": 1, "lr": 0.01, "width": 1},
        {"clients": 160, "participation": 1.0, "rounds": 8, "epochs": 1, "lr": 1.0, "width": 1},
        {"clients": 8, "participation": 0.01, "rounds": 8, "epochs": 50, "lr": 0.01, "width": 1},
        {"clients": 8, "participation": 1.0, "rounds": 8, "epochs": 1, "lr": 1.0, "width": 1024},
    ],
    "lcfed": [
        {"mu": 0.0, "lam": 0.0, "rank": 1, "k": 2, "rounds": 2},
        {"mu": 5.0, "lam": 5.0, "rank": 39, "k": 20, "rounds": 2},
    ],
    "mdicfl": [
        {"k": 1, "sampler": "back_search", "init": "common", "rounds": 3, "per_cluster": 24},
        {"k": 12, "sampler": "generator", "init": "distinct", "rounds": 3, "per_cluster": 3},
    ],
    "own": [
        {"rounds": 2, "epochs": 1, "lr": 0.01, "width": 1},
        {"rounds": 2, "epochs": 50, "lr": 1.0, "width": 1024},
    ],
    "scale": [
        {"clients": 1, "participation": 0.01, "workers": 1, "gigabits": 0.01},
        {"clients": 100000000, "participation": 1.0, "workers": 100000, "gigabits": 1000.0},
    ],
    "stocfl": [
        {"tau": -1.0, "lam": 0.0, "rounds": 2, "participation": 0.01, "per_cluster": 3},
        {"tau": 1.0, "lam": 10.0, "rounds": 2, "participation": 1.0, "per_cluster": 60},
    ],
}


def ends(name: str, parameter: parameters.Parameter) -> set:
    """Give the values at the edges of what a parameter allows."""
    if get_origin(parameter.hint) is Literal:
        return set(get_args(parameter.hint))
    (limits,) = get_args(parameter.hint)[1:]
    low = {0.01} if limits.open_low else {limits.low}
    return low if name == "rounds" else low | {limits.high}


def test_the_edges_are_those_that_the_chapters_declare():
    assert set(EDGES) == {path.stem for path in notebooks.chapters()}
    for chapter, settings in EDGES.items():
        schema = parameters.of(notebooks.chapter(chapter))
        for name, parameter in schema.parameters.items():
            if name not in ("seed", "images"):
                reached = {setting[name] for setting in settings}
                assert reached == ends(name, parameter), f"{chapter}: {name}"
        for setting in settings:
            schema.read({name: str(value) for name, value in setting.items()})


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "chapter, setting",
    [(name, setting) for name, settings in EDGES.items() for setting in settings],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
def test_a_chapter_runs_at_its_edges(chapter, setting, tmp_path):
    given = {name: str(value) for name, value in setting.items()}
    assert rerun.rerun(chapter, given, tmp_path).exists()
