"""How well the attributes that are FedCG's domains (Table 3) tell the label of a CelebA picture without a pixel.

``.venv/bin/python book/measure/attributes.py [FOLDER]`` stores it for the chapter; it needs the whole of CelebA.
"""

import json
import sys
from pathlib import Path

import torch

from cflkit.data import builders, images
from cflkit.data.images import Images
from cflkit.workbook import places
from cflkit.workbook.runs import records

# columns of CelebA's attributes (in alphabetical order) whose combinations are the domains of Table 3
ATTRIBUTES = {"attractive": 2, "heavy makeup": 18, "high cheekbones": 19, "mouth slightly open": 21,
              "wavy hair": 33}  # fmt: skip
TESTED = 234  # people


def tell(faces: Images, seed: int = 0, tested: int = TESTED) -> dict:
    """Answer each domain with its more frequent label among the people who train, and score on other people.

    Parameters
    ----------
    faces : Images
        With the attributes of CelebA, and the people.
    seed : int
        Draws the people who are tested.
    tested : int
        How many they are.

    Returns
    -------
    dict
        How many ``pictures`` there are and how many of them are ``tested``; the ``accuracy`` on these; the
        ``correlation`` of each attribute with the label; and the ``federation`` that divides the people.
    """
    fed = builders.by_user(
        faces, test="users", test_users=tested, attributes=list(ATTRIBUTES.values()), seed=seed
    )
    domains = 2 ** len(ATTRIBUTES)
    votes = torch.bincount(2 * fed.train.tag + fed.train.y, minlength=2 * domains).view(domains, 2)
    right = votes.argmax(1)[fed.test.tag] == fed.test.y
    both = {name: torch.stack([faces.extra["attributes"][:, k].double(), faces.y.double()])
            for name, k in ATTRIBUTES.items()}  # fmt: skip
    return {
        "pictures": len(faces),
        "tested": len(right),
        "accuracy": round(float(right.double().mean()), 6),
        "correlation": {name: round(float(torch.corrcoef(pair)[0, 1]), 6) for name, pair in both.items()},
        "federation": fed.config,
    }


def write(folder: Path = records.FOLDER) -> Path:
    """Measure it on CelebA, and store it with its provenance for the chapter."""
    places.need_folder("out", folder)
    measured = tell(images.load("celeba")) | {"provenance": records.provenance()}
    target = folder / "fedcg_attributes.json"
    with places.atomic_write(target) as part:
        part.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
    return target


if __name__ == "__main__":
    print(write(Path(*sys.argv[1:2] or [places.RESULTS])))
