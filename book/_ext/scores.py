"""What the pages call the scores of a run, whose names in records are those of ``cflkit.workbook.runs.results``."""

from cflkit.workbook.runs import results

MODELS = {"personal": "each client's own model", "global": "the model of all", "unseen": "clients never met"}
SHARES = {"accuracy": "accuracy", "own_accuracy": "accuracy on own labels", "f1": "F1"}
ENDS = {"": "{}", "micro": "{} by images", "std": "spread over clients of the {}",
        "worst10": "{} of the worst tenth of clients"}  # fmt: skip
PLAIN = {"ari": "ARI", "nmi": "normalised mutual information", "main_clusters": "large clusters",
         "moved": "clients that moved", "settled": "last round in which a client moved", "down": "bytes down",
         "up": "bytes up", "server_flops": "operations of the server", "client_flops": "operations of clients",
         "largest_share": "share of the largest domain", "lam": "weight of the residuals"}  # fmt: skip


def words(metric: str) -> str:
    """Say a metric: ``personal_f1_micro`` is "F1 by images, each client's own model"."""
    base = results.base(metric)
    if base not in results.SHARES:
        return PLAIN.get(base, base)
    share = max((name for name in SHARES if base.startswith(name)), key=len)
    said = ENDS[base.removeprefix(share).strip("_")].format(SHARES[share])
    return f"{said}, {MODELS[metric.removesuffix(f'_{base}')]}" if metric != base else said
