"""What each chapter's step-through shows: charts and sentences, made from a saved history."""

from collections import Counter

from cflkit.workbook import histories
from cflkit.workbook.panel import Panel
from cflkit.workbook.steps import Frame, Steps

PERCENT = [(0, "0"), (0.25, "25"), (0.5, "50"), (0.75, "75"), (1, "100")]


def span(values, margin: float = 0.06) -> tuple[float, float]:
    """From the least to the largest value, with a margin."""
    low, high = min(values), max(values)
    return low - margin * (high - low), high + margin * (high - low)


# ---------------------------------------------------------------------- StoCFL
def stocfl() -> Steps:
    """Slide the threshold: fingerprints merge; beside them the two ways to train the global model."""
    history = histories.load("stocfl")
    frames = [_threshold(frame, history) for frame in history["frames"]]
    return Steps(
        caption="Slide τ. A mark is a client's fingerprint: its shape the true rotation, its colour the cluster. "
                "The curves are the accuracy of the cluster models (solid) and of the global model (dashed), "
                "trained in parallel, as listed, or handed through the clients, as released. Each τ is one run on "
                "digits.",
        axis="threshold τ", labels=[f"{frame['tau']:g}" for frame in history["frames"]], variants=[""],
        header=["clusters", "accuracy, parallel [%]", "accuracy, chained [%]"], frames=[frames], start=5,
    )  # fmt: skip


def _threshold(frame: dict, history: dict) -> Frame:
    """Draw the fingerprints and both learning curves of one threshold."""
    points, assign = history["points"], frame["assign"]
    prints = Panel("Fingerprints", span([x for x, _ in points]), span([y for _, y in points]), 300, 220)
    members = Counter(assign)
    colours: dict[int, str] = {}
    for k, size in members.most_common():  # the largest cluster of a rotation has its colour
        kinds = Counter(t for t, a in zip(history["truth"], assign, strict=True) if a == k)
        colour = "abcd"[kinds.most_common()[0][0]]
        colours[k] = "alone" if size == 1 else "rest" if colour in colours.values() else colour
        own = [p for p, a in zip(points, assign, strict=True) if a == k]
        middle = [sum(axis) / len(own) for axis in zip(*own, strict=True)]
        for point in own:
            prints.line([point, middle], f"link {colours[k]}")
    for point, a, truth in zip(points, assign, history["truth"], strict=True):
        prints.mark(*point, "abcd"[truth], colours[a])
    curves = [_curves(name, frame[update]) for name, update in
              (("as listed [%]", "parallel"), ("as released [%]", "chained"))]  # fmt: skip
    ends = [100 * frame[update]["accuracy"][-1] for update in ("parallel", "chained")]
    alone = sum(size == 1 for size in members.values())
    count = f"{len(members)} cluster{'s' * (len(members) > 1)}" + f", {alone} of them a single client" * (alone > 0)
    says = (f"{count}; there are 4 rotations. After {histories.ROUNDS} rounds the cluster models reach "
            f"{ends[0]:.0f}% with the listing's parallel update, {ends[1]:.0f}% with the chained one.")  # fmt: skip
    return Frame([prints, *curves], says, [str(len(members)), *(f"{end:.1f}" for end in ends)])


def _curves(title: str, scores: dict) -> Panel:
    """Draw the learning curves of cluster models and global model."""
    last = histories.ROUNDS
    panel = Panel(title, (0, last), (0, 1), 155, 220, "round", [(0, "0"), (last, str(last))], PERCENT)
    panel.line(list(enumerate(scores["global_accuracy"])), "dashed")
    panel.line(list(enumerate(scores["accuracy"])), "a strong")
    return panel


PICTURES = {"stocfl": stocfl}
