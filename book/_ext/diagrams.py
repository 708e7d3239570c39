"""Diagrams of one round of each method: who does what, and what travels between server and clients.

``book/diagrams.yaml`` describes them in words. This module sets them out twice: for a page with room, server
above, clients below, time to the right; and for a phone, where time runs down. A test runs every method and
compares what it sends with what its diagram names.
"""

from dataclasses import dataclass
from functools import cache
from html import escape

import icons
import yaml
from icons import LINE, SIZE

from cflkit.workbook import places

WIDE, SLIM = 720, 350
PAD = 10
WAYS = ("down", "up")
ACTOR = {"server": "The server", "clients": "The clients"}


@dataclass(frozen=True)
class Message:
    """What travels: the name it has in the code, what stands for it, and what it is called."""

    key: str
    icons: str
    says: str


@dataclass(frozen=True)
class Step:
    """One numbered step: who acts, what is done and shown, what goes down or up, and whether it is done once."""

    who: str
    does: str
    shows: str
    clients: str
    down: tuple[Message, ...]
    up: tuple[Message, ...]
    once: str

    @classmethod
    def read(cls, spec: dict) -> "Step":
        """Read a step of ``diagrams.yaml``."""
        sent = {way: tuple(Message(key, *said) for key, said in spec.get(way, {}).items()) for way in WAYS}
        plain = {name: spec.get(name, "") for name in ("shows", "clients", "once")}
        return cls(who=spec["who"], does=spec["does"], **plain, **sent)

    def tell(self) -> str:
        """Say the step in words."""
        said = f"{ACTOR[self.who]}{f' ({self.once})' if self.once else ''}: {self.does}"
        for way, sent in (("down to the clients", self.down), ("up to the server", self.up)):
            if sent:
                said += f" Sent {way}: {', '.join(message.says for message in sent)}."
        return said


@cache
def described() -> dict[str, dict]:
    """Load what the diagrams show, by name; ``steps`` are read."""
    found = yaml.safe_load((places.BOOK / "diagrams.yaml").read_text("utf-8"))
    return {name: spec | {"steps": [Step.read(step) for step in spec["steps"]]} for name, spec in found.items()}


def drawing(name: str) -> str:
    """Write the Markdown that shows a diagram, in both settings, as a numbered figure with its caption."""
    spec = described()[name]
    both = f"{wide(name, spec)}\n{slim(name, spec)}"
    return f"```{{drawing}} {spec['caption']}\n:name: {spec['label']}\n\n{both}\n```\n"


# ---------------------------------------------------------------------- parts
def _svg(name: str, kind: str, spec: dict, size: tuple[float, float], body: list[str]) -> str:
    """Wrap a drawing: its name, and for those who do not see it all it says."""
    tells = " ".join(f"{i}. {step.tell()}" for i, step in enumerate(spec["steps"], 1))
    own = f"{name}-{kind}"
    return (f'<svg class="cfl cfl-{kind}" role="img" aria-labelledby="{own}-title {own}-desc" '
            f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]:g} {size[1]:g}" '
            f'style="max-width:{size[0]:g}px"><title id="{own}-title">{escape(spec["title"])}</title>'
            f'<desc id="{own}-desc">{escape(tells)}</desc>{"".join(body)}</svg>')  # fmt: skip


def _card(number: int, step: Step, room: float) -> tuple[str, float]:
    """Draw what is done, at the origin: number, words, picture; and how high that is."""
    text = icons.lines(step.does, room - 26)
    drawn = [f'<circle class="number" cx="10" cy="11" r="10"/>'
             f'<text class="number middle" x="10" y="15.5">{number}</text>', icons.words(text, 26, 15)]  # fmt: skip
    y = LINE * len(text) + 10
    if step.shows:
        drawn.append(icons.icons(step.shows, 26, y)[0])
        y += SIZE + 6
    if step.clients:
        drawn.append(icons.clients(step.clients, 26, y, min(24, (room - 26) / len(step.clients))))
        y += 30
    return "".join(drawn), y


def _messages(sent: tuple[Message, ...], room: float) -> tuple[str, float]:
    """Draw what travels, at the origin, one below the other; and how high that is."""
    drawn, y = [], 0.0
    for message in sent:
        picture, end = icons.icons(message.icons, 0, y)
        beside = room - end - 2 >= 90
        text = icons.lines(message.says, room - end - 2 if beside else room)
        top = y + 15 + (0 if beside else SIZE)
        high = max(SIZE, LINE * len(text) + 4) if beside else SIZE + LINE * len(text) + 4
        if beside and len(text) == 1:
            top += 1
        said = icons.words(text, end + 2 if beside else 0, top)
        drawn.append(f'<g data-key="{escape(message.key)}">{picture}{said}</g>')
        y += high + 7
    return "".join(drawn), y


def _arrow(x: float, start: float, end: float) -> str:
    """An arrow straight up or down."""
    tip = 7 if end > start else -7
    wings = f"M{x - 5:g} {end - tip:g} {x:g} {end + tip / 7:g} {x + 5:g} {end - tip:g}Z"
    return f'<path class="arrow" d="M{x:g} {start:g}V{end:g}"/><path class="head" d="{wings}"/>'


def _at(x: float, y: float, drawn: str) -> str:
    return f'<g transform="translate({x:g} {y:g})">{drawn}</g>'


# ---------------------------------------------------------------------- settings
def wide(name: str, spec: dict) -> str:
    """Set a diagram for a page: two lanes, a column for each step."""
    steps = spec["steps"]
    edges = _edges(steps)
    cards = [_card(i + 1, step, _room(steps, i, edges)) for i, step in enumerate(steps)]
    sent = [[(way, _messages(messages, edges[i + 1] - edges[i] - PAD - 26))
             for way, messages in (("down", step.down), ("up", step.up)) if messages]
            for i, step in enumerate(steps)]  # fmt: skip
    high = {who: 30 + max(h for step, (_, h) in zip(steps, cards, strict=True) if step.who == who) for who in ACTOR}
    below = high["server"] + 30 + max(sum(h for _, (_, h) in ways) for ways in sent)
    total = below + high["clients"]
    body = [_lane("server", 0, 0, WIDE, high["server"]), _lane("clients", 0, below, WIDE, high["clients"])]
    for i, step in enumerate(steps):
        x, y = edges[i], high["server"] + 14
        body.append(_at(x + PAD, (0 if step.who == "server" else below) + 28, cards[i][0]))
        if i and steps[i - 1].once and not step.once:
            body.append(f'<path class="rule" d="M{x:g} 4V{total - 4:g}"/>'
                        f'<text class="small end" x="{x - 6:g}" y="18">{escape(steps[i - 1].once)}</text>'
                        f'<text class="small" x="{x + 6:g}" y="18">in every round</text>')  # fmt: skip
        for k, (way, (messages, h)) in enumerate(sent[i]):
            ends = (high["server"] + 3, below - 3) if way == "down" else (below - 3, high["server"] + 3)
            body += [_arrow(x + PAD + 10 + (-4, 5)[k] * (len(sent[i]) - 1), *ends), _at(x + PAD + 26, y, messages)]
            y += h
    return _svg(name, "wide", spec, (WIDE, total), body)


def _free(steps: list[Step], i: int) -> bool:
    """Whether the next column has room for the card of a step: the other lane acts there, in the same part."""
    return i + 1 < len(steps) and steps[i + 1].who != steps[i].who and steps[i + 1].once == steps[i].once


def _edges(steps: list[Step]) -> list[float]:
    """Where the columns begin, and the last ends; they are broader where a card must stay in its own."""
    shares = [1 if _free(steps, i) else 1.4 for i in range(len(steps))]
    return [WIDE * sum(shares[:i]) / sum(shares) for i in range(len(steps) + 1)]


def _room(steps: list[Step], i: int, edges: list[float]) -> float:
    """How wide the card of a step may be."""
    return (edges[i + 2] - PAD if _free(steps, i) else edges[i + 1]) - edges[i] - 2 * PAD


def slim(name: str, spec: dict) -> str:
    """Set a diagram for a phone: a card for each step, the server's at the left, the clients' at the right."""
    parts = []
    for i, step in enumerate(spec["steps"], 1):
        before, after = (step.down, step.up) if step.who == "clients" else ((), step.down)
        drawn, high = _card(i, step, SLIM - 34 - 2 * PAD)
        x = 0 if step.who == "server" else 34
        card = _lane(step.who, x, 0, SLIM - 34, high + 34, step.once) + _at(x + PAD, 28, drawn), high + 34
        parts += [_passed(before), card, _passed(after) if after or i == len(spec["steps"]) else ("", 12)]
    body, y = [], 0.0
    for drawn, high in parts:
        body.append(_at(0, y, drawn) if drawn else "")
        y += high
    return _svg(name, "slim", spec, (SLIM, y), body)


def _passed(sent: tuple[Message, ...]) -> tuple[str, float]:
    """Draw what travels from one card of a phone to the next, if anything does, and say how high that is."""
    if not sent:
        return "", 0.0
    drawn, high = _messages(sent, SLIM - 80)
    return _arrow(52, 3, high + 13) + _at(70, 10, drawn), high + 17


def _lane(who: str, x: float, y: float, across: float, high: float, note: str = "") -> str:
    """The ground on which the server or the clients stand, with their name."""
    title = f"{who}, {note}" if note else who
    size = f'width="{across - 1:g}" height="{high - 1:g}" rx="8"'
    return (f'<rect class="lane {who}" x="{x + 0.5:g}" y="{y + 0.5:g}" {size}/>'
            f'<text class="who" x="{x + PAD:g}" y="{y + 18:g}">{escape(title)}</text>')  # fmt: skip
