"""Experiments and run records made up for tests."""

import importlib.util
import json
from datetime import date
from pathlib import Path

import yaml

from cflkit.workbook import places
from cflkit.workbook.claims import schema
from cflkit.workbook.runs import protocols, records


def experiment(folder, rounds=3, **methods):
    """Write a protocol `toy` on the bundled digits, with a table `t` and a claim, in place of the papers'."""
    methods = methods or {"a": {"name": "fedavg"}, "b": {"name": "oracle"}}
    labels = list(methods)
    protocol = {
        "paper": "ours", "feeds": "nothing", "federation": {"builder": "rotated", "images": "digits", "clients": 8},
        "model": "mlp8", "local": {"lr": 0.1}, "rounds": rounds, "cost": {"each": 1, labels[-1]: 2},
        "methods": methods, "assumed": ["everything"], "since": date(2000, 1, 1),
    }  # fmt: skip
    rows = {label.upper(): {"label": label} for label in labels}
    rows["A"]["printed"] = {"method": "MD-ICFL-1"}
    where = {"table": "Table 4", "participation": 1.0, "metric": "ARI"}
    table = {"paper": "mdicfl", "title": "T", "protocol": "toy", "where": where, "metric": "accuracy", "seeds": 2,
             "rows": rows}  # fmt: skip
    claim = {"id": "c", "says": "", "quote": "so", "place": "here", "parts": {"p": {"more": ["toy/a", 1]}}}
    out = [{"paper": paper, "item": "all", "because": "not here", "where": {}} for paper in schema.CHAPTERS]
    files = {"protocols": {"protocols": {"toy": protocol}}, "tables": {"tables": {"t": table}, "left_out": out},
             "claims": {"rules_since": date(2000, 1, 1), "gates": {"toy": "none"}, "mdicfl": [claim],
                        **{paper: [] for paper in schema.CHAPTERS if paper != "mdicfl"}}}  # fmt: skip
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    (folder / "results.yaml").symlink_to(places.PAPERS / "results.yaml")


def record(folder, protocol, label, seed, device="cpu", date="2100-01-01", early=0.5, **final):
    """Write a record of the protocol's configuration with those last-round numbers; earlier are `early` times."""
    spec = protocols.protocols()[protocol]
    method, local, setting = protocols.parts(spec, label)
    config = {k: setting[k] for k in ("model", "rounds", "participation") if k in setting}
    config |= {"method": method, "federation": spec["federation"] | {"seed": seed}, "local": local,
               "dtype": "float32", "seed": seed}  # fmt: skip
    moved = {0: 5, 1: 2}
    rows = [{"round": t, "clusters": 2, "sizes": [2, 1], "objective": -0.5, "moved": moved.get(t, 0),
             **{k: v if t == config["rounds"] else type(v)(v * early) for k, v in final.items()}}
            for t in range(config["rounds"] + 1)]  # fmt: skip
    made = {"card": None, "machine": {"processor": "a processor"}, "commit": "abc", "seconds": 60,
            "date": date, "device": device}  # fmt: skip
    whole = {"format": records.FORMAT, "clients": None, "protocol": protocol, "label": label,
             "config": config, "seed": seed, "final": rows[-1] | final,
             "rounds": rows, "provenance": made}  # fmt: skip
    path = folder / protocol / f"{records.name(whole)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    places.write(path, json.dumps(whole))
    return path


def script(name):
    """A script of ``book/measure`` as a module."""
    file = Path(__file__).resolve().parents[1] / "book" / "measure" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"measure_{name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
