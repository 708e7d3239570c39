"""No rule is changed without its date: what bears a date is today what it was on that day, by the history."""

import ast
import json
import subprocess
from datetime import date
from pathlib import Path

import pytest
import yaml

from cflkit.workbook import places, schema

ROOT = Path(__file__).resolve().parents[1]
PAPERS = "book/papers"
DECIDING = ("parts", "numbers", "ours")  # of a claim
STATED = ("paper", "protocol", "where", "metric", "seeds", "extended", "tolerance")  # of a table
SETTINGS = ("paper", "federation", "model", "local", "rounds", "participation", "evaluate_every")  # of a protocol


def git(*what):
    return subprocess.run(["git", "-C", str(ROOT), *what], capture_output=True, text=True)


@pytest.fixture(scope="module")
def on():
    """Return what gives a file as it was at the end of a day."""
    if git("rev-parse", "HEAD").returncode or git("rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        pytest.skip("no history is at hand")

    def on(day, file):
        if day >= date.today():
            return (ROOT / file).read_text()
        commit = git("rev-list", "-1", f"--before={day} 23:59:59 +0000", "HEAD").stdout.strip()
        return git("show", f"{commit}:{file}").stdout

    return on


def papers(text):
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def constants(text):
    """Numbers that are named at the top of a module."""
    found = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
    return {node.targets[0].id: node.value.value for node in found
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, int | float)}  # fmt: skip


def differ(now, then, keys):
    return [key for key in keys if now.get(key) != then.get(key)]


def changed_claims(claims, on):
    """Claims that were not on their day what they are now."""
    for paper in schema.CHAPTERS:
        for claim in claims[paper]:
            then = papers(on(claim["since"], f"{PAPERS}/claims.yaml"))
            (old,) = [one for one in then.get(paper, []) if one["id"] == claim["id"]] or [{}]
            if differ(claim, old, ("id", *DECIDING)):
                yield claim["id"]


def dated_by_claims(name, claims, on):
    """Whether all claims that lean on a new gate are as new as the gate: then no older verdict has changed."""
    leaning = [one for paper in schema.CHAPTERS for one in claims[paper] if f"{name}/" in yaml.safe_dump(one)]
    known = [papers(on(one["since"], f"{PAPERS}/claims.yaml"))["gates"] for one in leaning]
    return bool(known) and all(gates.get(name) == claims["gates"][name] for gates in known)


def changed_rules(claims, tables, code, on):
    """Gates, constants and tables that the rules' day did not know as they are now."""
    day = claims["rules_since"]
    then = papers(on(day, f"{PAPERS}/claims.yaml"))
    gates = then.get("gates", {})
    changed = {name for name, gate in claims["gates"].items() if gates.get(name) != gate}
    yield from (f"gate of {name}" for name in changed if name in gates or not dated_by_claims(name, claims, on))
    yield from differ(constants(code), constants(on(day, "cflkit/workbook/verdicts.py")), constants(code))
    known = papers(on(day, f"{PAPERS}/protocols.yaml"))["protocols"]
    old = papers(on(day, f"{PAPERS}/tables.yaml"))["tables"]
    for name, table in tables.items():
        if name in old:
            yield from (f"{name}: {key}" for key in differ(table, old[name], STATED))
        elif table["protocol"] in known and table["protocol"] in claims["gates"]:
            yield name  # a new protocol has no runs yet, and on one without a gate no claim may rest


def changed_protocols(protocols, on):
    """Protocols that were not on the day of their freezing what they are now; methods may have come."""
    for name, protocol in protocols.items():
        old = papers(on(protocol["since"], f"{PAPERS}/protocols.yaml"))["protocols"].get(name, {"methods": {}})
        methods = differ(protocol["methods"], old["methods"], old["methods"])
        if methods or differ(protocol, old, SETTINGS):
            yield name


@pytest.fixture(scope="module")
def now():
    claims, tables, protocols = (
        papers((ROOT / PAPERS / f"{file}.yaml").read_text()) for file in ("claims", "tables", "protocols")
    )
    return claims, tables["tables"], protocols["protocols"]


def test_no_claim_was_changed_without_its_date(now, on):
    assert not list(changed_claims(now[0], on))


def test_no_gate_constant_or_table_was_changed_without_the_day_of_the_rules(now, on):
    assert not list(changed_rules(*now[:2], (ROOT / "cflkit/workbook/verdicts.py").read_text(), on))


def test_no_frozen_protocol_was_changed_without_its_date(now, on):
    assert not list(changed_protocols(now[2], on))


def test_no_run_is_older_than_its_protocol(now):
    for name, protocol in now[2].items():
        for file in (places.RESULTS / name).glob("*.json"):
            made = json.loads(file.read_text())["provenance"]["date"]
            assert made >= str(protocol["since"]), f"{file.name} of {name}"


# ---------------------------------------------------------------------- what these notice, on a made-up history
THEN, CHANGED, LATER = date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3)


def history(**changes):
    """What lay in the files until `CHANGED`, and from then on."""
    def files(rules, tolerance, half, lr, cost):
        claims = {"rules_since": THEN, "gates": {"p": "none"}, **{paper: [] for paper in schema.CHAPTERS}}
        claims["lcfed"] = [{"id": "c", "since": THEN, "says": "s", "parts": rules}]
        table = {"protocol": "p", "seeds": 3, "tolerance": tolerance, "note": "n"}
        protocol = {"since": THEN, "local": {"lr": lr}, "cost": cost, "methods": {"a": {"name": "fedavg"}}}
        return claims, {"t": table}, {"p": protocol}, f"HALFWAY = {half}\n"

    old = dict(rules={"x": 1}, tolerance=1.0, half=0.5, lr=0.1, cost=1)
    before, after = files(**old), files(**old | changes)

    def on(day, file):
        claims, tables, protocols, code = before if day < CHANGED else after
        content = {"claims": claims, "tables": {"tables": tables}, "protocols": {"protocols": protocols}}
        return code if file.endswith(".py") else yaml.safe_dump(content[Path(file).stem])

    return *after, on


@pytest.mark.parametrize("change, told", [
    ({}, []), ({"cost": 2}, []), ({"rules": {"x": 2}}, ["c"]), ({"tolerance": 2.0}, ["t: tolerance"]),
    ({"half": 0.4}, ["HALFWAY"]), ({"lr": 0.2}, ["p"]),
])  # fmt: skip
def test_a_change_after_the_day_is_found_and_one_of_the_day_is_not(change, told):
    claims, tables, protocols, code, on = history(**change)

    def found():
        rules = changed_rules(claims, tables, code, on)
        return [*changed_claims(claims, on), *rules, *changed_protocols(protocols, on)]

    assert found() == told
    claims["rules_since"] = claims["lcfed"][0]["since"] = protocols["p"]["since"] = LATER
    assert found() == []


def test_a_table_of_an_old_protocol_is_a_new_rule_and_a_claim_must_be_there_on_its_day():
    claims, tables, protocols, code, on = history()
    assert list(changed_rules(claims, tables | {"u": tables["t"]}, code, on)) == ["u"]
    assert list(changed_rules(claims, tables | {"u": tables["t"] | {"protocol": "q"}}, code, on)) == []
    gateless = claims | {"gates": {}}  # the comparison's protocols: their tables decide nothing
    assert list(changed_rules(gateless, tables | {"u": tables["t"]}, code, on)) == []
    claims["lcfed"][0]["id"] = "d"
    assert list(changed_claims(claims, on)) == ["d"]
    claims["gates"]["p"] = "another reason"
    assert list(changed_rules(claims, tables, code, on)) == ["gate of p"]
    assert list(changed_protocols(protocols | {"q": protocols["p"]}, on)) == ["q"]


def test_a_new_gate_is_as_old_as_the_claims_that_lean_on_it():
    claims, tables, _, code, on = history()
    claims["gates"]["q"] = "none"
    assert list(changed_rules(claims, tables, code, on)) == ["gate of q"]  # no claim leans on it
    claims["lcfed"].append({"id": "d", "since": THEN, "says": "s", "parts": {"x": {"more": ["q/a", "q/b"]}}})
    assert list(changed_rules(claims, tables, code, on)) == ["gate of q"]  # this one is older
    claims["lcfed"][1]["since"] = LATER
    later = yaml.safe_dump({**claims, "rules_since": THEN})

    def with_it(day, file):
        return later if day == LATER and Path(file).stem == "claims" else on(day, file)

    assert list(changed_rules(claims, tables, code, with_it)) == []
    claims["lcfed"][0]["parts"] = {"y": {"more": ["q/a", "p/a"]}}  # and an older one besides
    assert list(changed_rules(claims, tables, code, with_it)) == ["gate of q"]
