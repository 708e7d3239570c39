"""Run records made up for tests."""

import json

from cflkit.workbook import protocols, records


def record(folder, protocol, label, seed, device="cpu", date="2100-01-01", early=0.5, **final):
    """Write a record of the protocol's configuration with those last-round numbers; earlier are `early` times."""
    spec = protocols.protocols()[protocol]
    kept = {k: spec[k] for k in ("model", "rounds", "participation") if k in spec}
    method = dict(spec["methods"][label])
    kept |= {k: method.pop(k) for k in ("rounds", "participation") if k in method}
    config = kept | {"method": method, "federation": spec["federation"], "local": spec["local"],
                     "dtype": "float32", "seed": seed}  # fmt: skip
    moved = {0: 5, 1: 2}
    rows = [{"round": t, "clusters": 2, "sizes": [2, 1], "objective": -0.5, "moved": moved.get(t, 0),
             **{k: v if t == config["rounds"] else v * early for k, v in final.items()}}
            for t in range(config["rounds"] + 1)]  # fmt: skip
    made = {"card": None, "machine": {"processor": "a processor"}, "commit": "abc", "seconds": 60,
            "date": date, "device": device}  # fmt: skip
    whole = {"protocol": protocol, "label": label, "config": config, "seed": seed, "final": rows[-1] | final,
             "rounds": rows, "provenance": made}  # fmt: skip
    path = folder / protocol / f"{records.name(whole)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole))
    return path
