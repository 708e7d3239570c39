"""What the diagrams of one round say is what the methods send; and they are drawings that everybody can read."""

import xml.etree.ElementTree as ET
from collections import defaultdict

import diagrams
import every
import icons
import pytest

from cflkit import federation, images, methods
from cflkit.engine.network import Network
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate

DIAGRAMS = diagrams.described()
SVG = "{http://www.w3.org/2000/svg}"


def merged(events):
    """Messages in their order, those of one direction that follow each other put together."""
    found = []
    for way, keys in events:
        if not keys:
            continue
        if found and found[-1][0] == way:
            found[-1][1].update(keys)
        else:
            found.append((way, set(keys)))
    return found


@pytest.fixture
def sent(monkeypatch):
    """Every exchange of a run, by round: its direction and the names of what travels."""
    events = defaultdict(list)
    call, chain = Network.call, Network.chain

    def spied_call(net, clients, work, down=None, per_client=None, mean=None, known=None):
        up = call(net, clients, work, down, per_client, mean, known)
        if len(clients):
            events[net.round] += [("down", {*(down or {}), *(per_client or {})}), ("up", set(up))]
        return up

    def spied_chain(net, clients, work, carry, start, down=None, mean=None):
        up = chain(net, clients, work, carry, start, down, mean)
        events[net.round] += [("down", {carry, *(down or {})}), ("up", set(up))]
        return up

    monkeypatch.setattr(Network, "call", spied_call)
    monkeypatch.setattr(Network, "chain", spied_chain)
    return events


def drawn(name):
    """Both settings of a diagram, parsed."""
    spec = DIAGRAMS[name]
    return [ET.fromstring(setting(name, spec)) for setting in (diagrams.wide, diagrams.slim)]


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_names_what_the_method_sends_in_that_order(name, sent):
    settings = dict(DIAGRAMS[name]["runs"])
    method = settings.pop("name")
    fed = federation.rotated(images.load("digits"), clients=12, seed=0)
    runs = methods.get(method, **every.SMALL.get(method, {}) | settings)
    simulate(runs, fed, model=every.model(method), local=SGD(0.1), rounds=2, participation=0.5, evaluate_every=5,
             personal_clients=0, progress=False)  # fmt: skip
    said = {True: [], False: []}
    for step in DIAGRAMS[name]["steps"]:
        said[bool(step.once)] += [(way, {m.key for m in getattr(step, way)}) for way in ("down", "up")]
    assert merged(said[True]) == merged(sent[0])
    assert merged(said[False]) == merged(sent[1])
    known = {(way, key) for way, keys in said[False] for key in keys}
    assert {(way, key) for way, keys in sent[2] for key in keys} <= known


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_svg_that_says_all_it_shows(name):
    for root in drawn(name):
        title, desc = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
        assert root.get("role") == "img"
        assert root.get("aria-labelledby") == f"{title.get('id')} {desc.get('id')}"
        assert title.text == DIAGRAMS[name]["title"]
        for i, step in enumerate(DIAGRAMS[name]["steps"], 1):
            assert f"{i}. The {step.who}" in desc.text and step.does in desc.text
            assert all(m.says in desc.text for m in step.down + step.up)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_every_message_is_drawn_and_every_text_has_room(name):
    keys = sorted(m.key for step in DIAGRAMS[name]["steps"] for m in step.down + step.up)
    for root, across in zip(drawn(name), (diagrams.WIDE, diagrams.SLIM), strict=True):
        assert sorted(g.get("data-key") for g in root.iter(f"{SVG}g") if g.get("data-key")) == keys

        def right(node, x=0.0):
            """How far to the right the texts of a node reach."""
            move = node.get("transform", "")
            x += float(move.removeprefix("translate(").split()[0]) if move.startswith("translate(") else 0
            if node.tag == f"{SVG}tspan":
                return x + float(node.get("x")) + icons.width(node.text.strip())
            return max((right(child, x) for child in node), default=0)

        assert right(root) <= across


def test_two_names_of_one_page_are_different():
    names = [node.get("id") for name in DIAGRAMS for root in drawn(name) for node in root.iter() if node.get("id")]
    assert len(names) == len(set(names))


def test_a_line_that_is_too_long_breaks():
    assert icons.lines("one two three", icons.width("one two")) == ["one two", "three"]
    assert icons.lines("one two\u00a0three", icons.width("one two")) == ["one", "two\u00a0three"]
    assert icons.lines("unbreakable", 1) == ["unbreakable"]
