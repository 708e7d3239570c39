"""What stands in book/papers is as declared; what is not gets one line with file, entry and key."""

from datetime import date
from itertools import chain
from pathlib import Path

import made
import pytest
import yaml

from cflkit.workbook import console, places, strict
from cflkit.workbook.claims import ledger, schema, verdicts
from cflkit.workbook.runs import protocols

REAL = Path(__file__).resolve().parents[1] / "book" / "papers"
PROTOCOL = {
    "paper": "stocfl", "feeds": "nothing", "federation": {"builder": "rotated", "images": "digits", "clients": 8},
    "model": "mlp8", "local": {"lr": 0.1}, "rounds": 3, "cost": {"each": 1}, "assumed": ["all of it"],
    "methods": {"a": {"name": "fedavg"}, "b": {"name": "ifca", "k": 2, "rounds": 4}}, "since": date(2026, 1, 1),
}  # fmt: skip
ROWS = {"A": {"label": "a", "printed": {"method": "FedAvg"}}, "B": {"label": "b"}}
TABLE = {"paper": "stocfl", "title": "T", "protocol": "toy", "metric": "accuracy", "seeds": 3,
         "where": {"table": "Table 1", "n_clients": 4800, "participation": 0.1}, "rows": ROWS}  # fmt: skip
CLAIM = {"id": "c", "says": "n", "quote": "so", "place": "here", "since": date(2026, 1, 1),
         "numbers": {"n": {"table": "Table 1", "method": "FedAvg"}},
         "parts": {"p": {"more": ["toy/a", ["toy/b", "toy/a/ari"]], "by": 1}}}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "results.yaml").symlink_to(REAL / "results.yaml")
    monkeypatch.setattr(places, "PAPERS", tmp_path)
    return tmp_path


def write(folder, protocol=PROTOCOL, table=TABLE, claim=CLAIM, outer=None):
    files = {"protocols": {"protocols": {"toy": protocol}}, "tables": {"tables": {"t": table}},
             "claims": {"rules_since": date(2026, 1, 1), "gates": {"toy": "none"}, "stocfl": [claim]}}  # fmt: skip
    for name, content in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content | (outer or {}).get(name, {})))


def read(folder):
    """Everything that is asked of the files of the papers."""
    protocols.check(), [*ledger.rows("t", folder)], verdicts.verdicts("stocfl", folder)


def test_the_real_files_are_as_declared():
    protocols.check()
    assert len(schema.protocols()) > 50 and len(schema.tables()) > 50
    ids = [claim["id"] for found in schema.claims().values() for claim in found]
    assert len(ids) == len(set(ids)) and set(schema.claims()) == set(schema.CHAPTERS)
    chosen = {name for name, table in schema.tables().items() if table["protocol"].endswith("_tune")}
    assert min(table["seeds"] for name, table in schema.tables().items() if name not in chosen) >= 3
    assert "_tune/" not in str(schema.claims())  # a choice of weights decides no claim
    for claim in chain.from_iterable(schema.claims().values()):
        rules = {schema.sides(part)[0] for part in claim.get("parts", {}).values()}
        assert (claim.get("kind") == "print") == (rules == {"printed_more"}), claim["id"]
        assert ("ratio" not in rules) or claim.get("kind") == "arithmetic", claim["id"]
    assert {one["claim"] for one in schema.corrections()} <= set(ids)


def test_the_defaults_that_the_ledger_reads_are_the_librarys():
    """If not: ``.venv/bin/python book/measure/defaults.py``. A method without experiments may be missing there."""
    noted, found = protocols.defaults(), made.script("defaults").found()
    for kind in ("method", "federation"):
        found[kind] = {name: found[kind][name] for name in noted[kind]}
    assert noted == found


def test_a_whole_one_passes(folder):
    write(folder)
    read(folder)


def changed(given, path, value):
    """A copy in which one place is another; without it if the value is None."""
    first, *rest = path.split(".")
    inner = changed(given.get(first, {}), ".".join(rest), value) if rest else value
    return {k: v for k, v in ({**given, first: inner}).items() if v is not None}


def refused(folder, told):
    strict.read.cache_clear()
    with pytest.raises(ValueError, match=f"^{told}") as error:
        read(folder)
    assert "\n" not in str(error.value)


SEARCH = {"reading": "x", "label": "a", "found": {}}
MALFORMED = {
    "protocol": ("protocols.yaml, toy", PROTOCOL, [
        ("participaton", 0.1, r"key = 'participaton': must be one of .*the nearest is participation"),
        ("cost", None, "cost = None: must be given"),
        ("cost", {"a": 1}, "cost = 'each': must be one of a"),
        ("cost.each", 0, "cost of each = 0: must be a finite number, greater than 0"),
        ("local.lrr", 0.1, r"a: key = 'lrr': must be one of .*the nearest is lr"),
        ("local", {}, "a: lr = None: must be given"),
        ("rounds", 2.5, "rounds = 2.5: must be an integer"),
        ("participation", 0, r"participation = 0: must be a finite number, in \(0, 1\]"),
        ("model", "lenett", r"a: model = 'lenett': must be one of .*the nearest is lenet"),
        ("federation.validating", True, r"a: validating = True: must be given with validation_fraction"),
        ("federation.builder", "rotatd", r"builder in defaults.json = 'rotatd': .*the nearest is rotated"),
        ("federation.images", ["digits", "digits"], r"a: images = .*: must be all different, or two true"),
        ("federation.client", 8, r"a: key = 'client': .*the nearest is clients"),
        ("federation.clients", None, "a: clients = None: must be given"),
        ("methods.a.name", "fedavgg", r"method of a in defaults.json = 'fedavgg': .*the nearest is fedavg"),
        ("methods.b.kk", 2, r"b: ifca's parameter = 'kk': must be one of"),
        ("methods.b.k", 0, r"b: k = 0: must be"),
        ("methods", {}, "methods = {}: must be at least one label"),
        ("methods.a", "fedavg", "method of a = 'fedavg': must be a mapping"),
        ("assumed", [{"score": "own"}], r"assumed = .*must be a sequence, each a text"),
        ("assumed", [], r"assumed = \[\]: must be a sequence, each a text, not empty"),
        ("paper", "ifca", "paper = 'ifca': must be one of"),
        ("since", None, "since = None: must be given"),
        ("search", [SEARCH], "readings that were chosen = 0: must be one"),
    ]),
    "table": ("tables.yaml, t", TABLE, [
        ("protocl", "toy", r"key = 'protocl': .*the nearest is protocol"),
        ("protocol", "toyy", r"protocol = 'toyy': .*the nearest is toy"),
        ("metric", "acuracy", "metric = 'acuracy': must be one of accuracy"),
        ("also", ["arri"], "also = .*must be a sequence, each one of"),
        ("seeds", 0, r"seeds = 0: must be an integer, in \[1, 10\]"),
        ("where.tabel", "Table 1", r"rows, A: field = 'tabel': .*the nearest is table"),
        ("rows.A.label", "c", r"label = 'c': must be one of a, b"),
        ("rows.A.modell", "personal", r"rows, A: key = 'modell': .*the nearest is model"),
        ("rows.A.model", "own", "rows, A: model = 'own': must be one of personal, global, unseen"),
        ("rows.A.printed", {"method": "Nobody"}, "rows, A: where = .*must be fields of at least one entry"),
        ("rows.A.printed", {"method": "IFCA"}, "rows, A: printed = .*must be fields of exactly one printed number"),
        ("rows.A", "a", "rows, A: entry = 'a': must be a mapping"),
    ]),
    "claim": ("claims.yaml(, stocfl)?", CLAIM, [
        ("sais", "x", r"key = 'sais': .*the nearest is says"),
        ("quote", None, "quote = None: must be given"),
        ("since", "today", "since = 'today': must be of type date"),
        ("parts", None, "parts = .*must be given, or 'untested'"),
        ("lead", "m", "number = 'm': must be one of n"),
        ("numbers.n", {"method": "Nobody"}, "numbers, n: where = .*must be fields of at least one entry"),
        ("numbers.n", [{"method": "FedAvg"}, {"method": "IFCA"}], "numbers, n: numbers = .*must be as many on"),
        ("parts.p", {"mre": ["toy/a", "toy/b"]}, "parts, p: key = 'mre': must be .*the nearest is more"),
        ("parts.p", {"more": ["toy/a", "toy/b"], "near": ["toy/a", "toy/b"]}, "parts, p: rule = .*must be a sin"),
        ("parts.p.more", ["toy/a"], r"parts, p: more = \['toy/a'\]: must be a list of 2"),
        ("parts.p.more", ["toy/a", "toy/c"], "p: label = 'c': must be one of a, b"),
        ("parts.p.more", ["toyy/a", "toy/b"], "protocol = 'toyy': .*the nearest is toy"),
        ("parts.p.more", ["toy/a/accurcy", "toy/b"], "p: metric = 'accurcy': .*the nearest is accuracy"),
        ("parts.p.more", ["toy", "toy/b"], "parts, p: number = 'toy': must be one of n"),
        ("parts.p.within", 1, "parts, p: key = 'within': must be one of more, by, lead"),
        ("parts.p.by", "1", "parts, p: by = '1': must be a finite number"),
        ("parts.p", {"ratio": ["toy/a", "toy/b"]}, "parts, p: to = None: must be given"),
        ("parts.p", {"near": ["toy/a", "m"], "within": 1}, "p: number = 'm': must be one of n"),
        ("parts.p", "toy/a", "parts, p: entry = 'toy/a': must be a mapping"),
        ("main", "yes", "main = 'yes': must be True or False"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize(("what", "path", "value", "told"), [
    (what, *one) for what, (_, _, every) in MALFORMED.items() for one in every])  # fmt: skip
def test_a_malformed_entry_gets_one_line(what, path, value, told, folder):
    place, whole, _ = MALFORMED[what]
    write(folder, **{what: changed(whole, path, value)})
    refused(folder, f"{place}.*{told}")


@pytest.mark.parametrize(("outer", "told"), [
    ({"protocols": {"protcols": {}}}, "protocols.yaml: key = 'protcols': .*the nearest is protocols"),
    ({"protocols": {"protocols": []}}, r"protocols.yaml: protocols = \[\]: must be of type dict"),
    ({"tables": {"left_out": [{"paper": "stocfl", "item": "i"}]}},
     "tables.yaml, left_out, 1: because = None: must be given"),
    ({"tables": {"left_out": ["x"]}}, "tables.yaml, left_out, 1: entry = 'x': must be a mapping"),
    ({"claims": {"stoclf": []}}, "claims.yaml: key = 'stoclf': .*the nearest is stocfl"),
    ({"claims": {"gates": {"toi": "none"}}}, "claims.yaml: protocol = 'toi': .*the nearest is toy"),
    ({"claims": {"gates": {"toy": {"baseline": "a"}}}}, "claims.yaml, gates, toy: classes = None: must be given"),
    ({"claims": {"gates": {}}}, "claims.yaml: gate of protocol = 'toy': must be one of"),
    ({"claims": {"rules_since": "now"}}, "claims.yaml: rules_since = 'now': must be of type date"),
    ({"claims": {"stocfl": [CLAIM, CLAIM]}}, "claims.yaml: id = 'c': must be there once"),
])  # fmt: skip
def test_a_malformed_file_gets_one_line(outer, told, folder):
    write(folder, outer=outer)
    refused(folder, told)


@pytest.mark.parametrize("text, told", [
    ("protocols: {toy: {}, toy: {}}\n", "protocols.yaml: the key 'toy' stands twice"),
    ("protocols: [1\n", "protocols.yaml: while parsing"),
    ("- 1\n", r"protocols.yaml = \[1\]: must be a mapping"),
    ("", "protocols.yaml = None: must be a mapping"),
    ("{}\n", "protocols.yaml: protocols = None: must be given"),
    ("protocols: {toy: 3}\n", "protocols.yaml, toy: entry = 3: must be a mapping"),
])  # fmt: skip
def test_what_is_no_yaml_gets_one_line(text, told, folder):
    write(folder)
    (folder / "protocols.yaml").write_text(text)
    refused(folder, told)


@pytest.mark.parametrize("command", [
    ["results", "--ledger"], ["reproduce", "t"], ["simulate", "--protocol", "toy"], ["list", "protocols"],
])  # fmt: skip
def test_every_command_refuses_it(command, folder, capsys, monkeypatch):
    write(folder, protocol=PROTOCOL | {"participaton": 0.1})
    monkeypatch.chdir(folder)
    assert console.main([*command]) == 2
    assert capsys.readouterr().err.startswith("cflkit: protocols.yaml, toy: key = 'participaton': must be one of ")
