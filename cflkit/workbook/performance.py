"""The book's page of speed and memory: tables made from ``benchmarks/results`` whenever the book is built.

Every file there comes from one machine and one script (``engine``, ``cores``, ``memory``, ``scaling``, ``peers``);
a number is never typed. What has not been run reads "not yet measured".
"""

import json
from pathlib import Path

from cflkit.workbook import places

RESULTS = places.ROOT / "benchmarks" / "results"
MISSING = "not yet measured"


def write(out: Path, folder: Path = RESULTS) -> None:
    """Write ``performance.md``, which the page includes, into the folder `out`."""
    text = ["### One round beside the usual loop\n"]
    found = {kind: load(kind, folder) for kind in ("engine", "cores", "memory", "scaling", "peers")}
    for place, here in (("processor", lambda card: card is None), ("GPU", lambda card: card is not None)):
        files = [file for file in found["engine"] if here(file["machine"]["card"])]
        text += [_engine(file) for file in files] or [f"On a {place}: {MISSING}.\n"]
    for kind, title, columns in (
        ("cores", "Two cores, and a whole experiment",
         {"work": "work", "workers": "workers", "wall": "seconds", "ratio": "times one worker"}),
        ("memory", "Peak memory of whole rounds", {"work": "work", "mb": "MB"}),
        ("scaling", "Against clients, images, parameters and participation",
         {"axis": "varied", "clients": "clients", "images": "images each", "parameters": "parameters",
          "sampled": "sampled", "cpu": "CPU seconds a round", "cpu_ms_a_client": "ms a client", "mb": "MB added"}),
        ("peers", "Other libraries on the same work",
         {"workload": "workload", "library": "library", "cpu": "CPU seconds a round", "ratio": "times ours",
          "difference": "difference of losses"}),
    ):  # fmt: skip
        text.append(f"### {title}\n")
        text += [_table(columns, file["rows"]) + _where(file["machine"]) for file in found[kind]]
        if not found[kind]:
            text.append(f"{MISSING.capitalize()}.\n")
    (out / "performance.md").write_text("\n".join(text))


def load(kind: str, folder: Path = RESULTS) -> list[dict]:
    """All results of one script, a machine each."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*.json"))]


def _engine(file: dict) -> str:
    clock = "cpu" if file["machine"]["card"] is None else "wall"
    rows = [
        {
            "workload": row["workload"],
            "clients": row["clients"],
            "usual [ms]": 1e3 * row[f"usual_{clock}"] / row["clients"],
            "ours [ms]": 1e3 * row[f"ours_{clock}"] / row["clients"],
            "ratio": row[f"ratio_{clock}"],
            "ratio, wall": row["ratio_wall"],
            "must be": row["least"],
            "of the ceiling": f"{100 * row['ours_ceiling']:.0f}%",
            "memory [MB]": row["ours_mb"],
            "usual memory": row["usual_mb"],
        }
        for row in file["rows"]
    ]
    ceiling = f"Matrix products reach {file['machine']['ceiling'] / 1e9:.0f} GFLOP/s here. "
    return _table({name: name for name in rows[0]}, rows) + ceiling + _where(file["machine"])


def _table(columns: dict[str, str], rows: list[dict]) -> str:
    """A Markdown table of the named entries."""
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[_text(row.get(name)) for name in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n"


def _text(value) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _where(machine: dict) -> str:
    """On what, when and how busy."""
    name = machine["card"] or machine["machine"]["processor"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if k in ("python", "torch"))
    return (f"{name}, {machine['machine']['threads']} thread; {versions}; {machine['date']}, commit "
            f"{machine['commit'] or 'unknown'}; {machine['load']:.1f} programs were running.\n")  # fmt: skip
