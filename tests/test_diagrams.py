"""What the diagrams of one round say is what the methods send; and all of it is drawn."""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict

import drawings
import every
import pytest

from cflkit import federation, images, methods
from cflkit.engine.network import Network
from cflkit.engine.sgd import SGD
from cflkit.engine.simulation import simulate

DIAGRAMS = drawings.diagrams()


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
        said["once" in step] += [(way, set(step.get(way, ()))) for way in ("down", "up")]
    assert merged(said[True]) == merged(sent[0])
    assert merged(said[False]) == merged(sent[1])
    known = {(way, key) for way, keys in said[False] for key in keys}
    assert {(way, key) for way, keys in sent[2] for key in keys} <= known


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_draws_every_step_and_message_with_known_icons(name):
    spec = DIAGRAMS[name]
    root = ET.fromstring(drawings.diagram(spec))
    assert root.get("aria-label") == spec["title"]
    lanes, items = root[:2], root[2:]
    assert [lane.get("class") for lane in lanes] == ["lane server", "lane clients"]
    for number, (step, item) in enumerate(zip(spec["steps"], items, strict=True), 1):
        told = " ".join("".join(item.itertext()).split())
        assert f"{number} {step['does']}" in told and item.get("class") == step["who"]
        sent = {way: step[way] for way in ("down", "up") if way in step}
        drawn = {way.get("class").split()[1]: [line.get("data-key") for line in way.findall("div")]
                 for way in item.iter("div") if (way.get("class") or "").startswith("way ")}  # fmt: skip
        assert drawn == {way: list(messages) for way, messages in sent.items()}
        asked = " ".join([step.get("shows", ""), *(icon for many in sent.values() for icon, _ in many.values())])
        words = {token.partition(".")[0] for token in re.findall(r"[a-z][a-z.]+", asked)}
        assert words <= set(drawings.icons()["icons"])
        assert all(says in told for messages in sent.values() for _, says in messages.values())
