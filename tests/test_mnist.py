"""Chapters whose pictures are a parameter run on the real MNIST, in five minutes each."""

import resource

import pytest

from cflkit import images
from cflkit.workbook.chapters import notebooks, parameters, rerun

CHAPTERS = [path.stem for path in notebooks.chapters() if "images" in parameters.of(path).parameters]


def test_these_chapters_take_other_pictures():
    assert CHAPTERS == ["baselines", "drift", "fedcg", "fesem", "lcfed", "mdicfl", "stocfl"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_runs_on_mnist_in_five_minutes(chapter, tmp_path):
    """Of the processor's time: a machine that is busy takes longer."""
    if images.status()["mnist"] == "absent":
        pytest.skip("MNIST is not here: `cflkit data mnist` downloads it")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = rerun.read(rerun.rerun(chapter, {"images": "mnist"}, tmp_path) / "run.json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run["parameters"]["images"] == "mnist" and run["metrics"]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 300
