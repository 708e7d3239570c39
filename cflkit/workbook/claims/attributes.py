"""FedCG's Table 3 as printed; ``book/measure/attributes.py`` measures what its attributes tell of the label."""

from cflkit.workbook.claims import papers


def printed_rows() -> dict[str, float]:
    """Give Table 3 as printed: the accuracy (%) of each row, by what the row has."""
    rows = {}
    for entry in papers.entries():
        if (entry["paper"], entry["table"]) == ("fedcg", "Table 3"):
            has = entry["setting"]
            weighed = {"uniform": "uniform A", "inverse Hamming": "Hamming A"}.get(has["A"])
            parts = [entry["method"], weighed, "W" if has["W"] else None, "ReLU" if has["relu"] else None]
            rows[", ".join(filter(None, parts))] = entry["value"]
    return rows
