"""Break one line of a method at a time, and report whether that method's tests notice.

``mutants.yaml`` says which tests are whose, and why some mutants survive. Every mutant runs in a child of a process
that has imported PyTorch and nothing of this package: a process of its own would spend seconds on imports alone.
"""

import argparse
import ast
import gc
import hashlib
import importlib
import os
import resource
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

REQUIRED = 0.9  # share of a file's mutants that its tests must kill
OPTIONS = shlex.split("-x --assert plain -m 'not slow' --hypothesis-profile unshrunk "
                      "-p no:cacheprovider -p no:nbval -p no:xdist")  # fmt: skip
MEMORY = 6 * 2**30  # bytes that a child may hold
LISTING = Path("build/mutants.txt")

OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
         ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
         ast.And: ast.Or, ast.Or: ast.And}  # fmt: skip
NEGATED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
           ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
EDGE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
NAMES = {"argmin": "argmax", "argmax": "argmin", "min": "max", "max": "min", "mean": "sum", "sum": "mean"}

SILENT = ("device", "strict")  # arguments: a CPU is the only place, and strict zips only watch the code itself


class Mutant(NamedTuple):
    """A broken file: line number, text of the line, what was changed, the whole source."""

    number: int
    text: str
    change: str
    source: str


# ---------------------------------------------------------------------- breaking
def mutants(source: str) -> Iterator[Mutant]:
    """Every way in which `source` is broken, from the top."""
    tree, lines = ast.parse(source), source.splitlines()
    for holder, field, i, node in places(tree):
        where = f"{holder.arg}=" if isinstance(holder, ast.keyword) and isinstance(node, ast.Constant) else ""
        for change, other in wrong(node):
            put(holder, field, i, other)
            yield Mutant(node.lineno, lines[node.lineno - 1].strip(), where + change, ast.unparse(tree))
        put(holder, field, i, node)


def wrong(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What could stand in a node's place, and how that is described."""

    def like(**fields):
        other = type(node)(**(dict(ast.iter_fields(node)) | fields))
        return f"{ast.unparse(node)} -> {ast.unparse(other)}", other

    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in OTHER:
            yield like(op=OTHER[type(node.op)]())
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.BitOr() | ast.BitAnd()):
            parts = [node.left, node.right]
        case ast.BoolOp():
            parts = node.values if len(node.values) == 2 else []
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            parts = [node.operand]
        case _:
            parts = []
    yield from ((f"{ast.unparse(node)} -> {ast.unparse(part)}", part) for part in parts)
    match node:
        case ast.Compare(ops=ops):
            for table in (NEGATED, EDGE):
                for i, op in enumerate(ops):
                    if type(op) in table:
                        yield like(ops=[*ops[:i], table[type(op)](), *ops[i + 1 :]])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp):  # which are negated themselves
                no = ast.UnaryOp(ast.Not(), test)
                yield f"{ast.unparse(test)} -> {ast.unparse(no)}", like(test=no)[1]
        case ast.Attribute(attr=name) if name in NAMES:
            yield f"{name} -> {NAMES[name]}", like(attr=NAMES[name])[1]
        case ast.Name(id="min" | "max" as name):
            yield f"{name} -> {NAMES[name]}", like(id=NAMES[name])[1]
        case ast.Call(keywords=keywords):
            for keyword in keywords:
                if keyword.arg not in (None, *SILENT):
                    rest = [other for other in keywords if other is not keyword]
                    yield f"without {ast.unparse(keyword)}", like(keywords=rest)[1]
        case ast.Slice():
            yield from (like(**{end: None}) for end in ("lower", "upper") if getattr(node, end))
        case ast.Constant(value=bool(value)):
            yield like(value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield like(value=0 if value == 1 else value + 1)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield f"without {ast.unparse(node)}", ast.Pass()


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Every node that computes something: its parent, the field there, the place in a list, and itself.

    Decorators, annotations and the defaults of hyper-parameters are declarations; what `require` says is wording;
    any seed is as good as another.
    """
    for field, value in ast.iter_fields(node):
        for i, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or field in ("decorator_list", "annotation", "returns"):
                continue
            if isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign):
                continue
            if isinstance(node, ast.keyword) and node.arg in SILENT:
                continue
            if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "seed":
                continue
            if isinstance(node, ast.Call) and field == "args" and i and ast.unparse(node.func) == "require":
                continue
            yield node, field, i, child
            yield from places(child)


def put(holder: ast.AST, field: str, i: int | None, node: ast.AST) -> None:
    if i is None:
        setattr(holder, field, node)
    else:
        getattr(holder, field)[i] = node


def drawn(found: Iterable[Mutant], n: int) -> list[Mutant]:
    """Take `n` by a digest of what they change, so that the draw hardly changes with the rest of the file."""
    return sorted(sorted(found, key=lambda m: hashlib.sha256(f"{m.text}\n{m.change}".encode()).digest())[:n])


# ---------------------------------------------------------------------- noticing
def run_tests(path: str, source: str, tests: str, seconds: float, noticed: int) -> None:
    """In a child: put `source` in the place of the file, run the tests, leave with pytest's exit status."""

    class Notice:
        def pytest_runtest_logreport(self, report):
            if report.failed:
                os.write(noticed, report.nodeid.rpartition("/")[2].encode()[:400])

        pytest_collectreport = pytest_runtest_logreport

    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))  # then SIGXCPU, which nothing handles
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # a full singular basis of a network fills a machine
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silent, stream)
    own, code_of = str(Path(path).resolve()), SourceFileLoader.get_code
    SourceFileLoader.get_code = lambda s, name: compile(source, own, "exec") if s.path == own else code_of(s, name)
    os._exit(pytest.main([*OPTIONS, *shlex.split(tests)], plugins=[Notice()]))


def run(jobs: list, cores: int) -> Iterator[tuple[int, bool, str, float]]:
    """Run every job in a child, `cores` at a time: its number, whether all passed, what noticed, CPU seconds."""
    running, left = {}, list(enumerate(jobs))[::-1]
    while left or running:
        while left and len(running) < cores:
            number, job = left.pop()
            ours, its = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    run_tests(*job, its)
                finally:
                    os._exit(70)
            os.close(its)
            running[child] = number, ours
        child, status, usage = os.wait3(0)
        number, ours = running.pop(child)
        end = signal.strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else f"status {status >> 8}"
        with open(ours) as pipe:
            yield number, status == 0, pipe.read() or end, usage.ru_utime + usage.ru_stime


def warm_up(modules: list[str], package: str) -> None:
    """Import what all children need, and forget the package itself, which each imports with one file broken."""
    for module in modules:
        importlib.import_module(module)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[module]
    gc.collect()
    gc.freeze()  # children need not look through all of PyTorch for garbage


def examine(tests: dict[str, str], chosen: list[tuple[str, Mutant]], cores: int) -> list[str | None]:
    """What noticed each mutant, None for survivors; whatever takes much longer than all tests runs for ever."""
    limit, total = {}, 0.0
    whole = [(path, Path(path).read_text(), tests[path], 600) for path in tests]
    for n, passed, noticed, cpu in run(whole, cores):
        limit[whole[n][0]], total = 5 + 3 * cpu, total + cpu
        if not passed:
            sys.exit(f"{whole[n][0]}: its tests fail without any mutant: {noticed}")
    found = [None] * len(chosen)
    for n, passed, noticed, cpu in run([(p, m.source, tests[p], limit[p]) for p, m in chosen], cores):
        found[n], total = None if passed else noticed, total + cpu
    print(f"{total:.0f} s of CPU; what noticed each mutant stands in {LISTING}\n")
    return found


def report(chosen: list[tuple[str, Mutant]], found: list[str | None], why: dict) -> list[str]:
    """Print a table and the survivors, store what noticed the others, and say what is wrong."""
    LISTING.parent.mkdir(exist_ok=True)
    all_of = list(zip(chosen, found, strict=True))
    LISTING.write_text("".join(f"{p}:{m.number}: {m.change}\n    {f or 'SURVIVED'}\n" for (p, m), f in all_of))
    wrongs = []
    print(f"{'file':<36}{'mutants':>8}{'killed':>8}{'share':>8}")
    for path in dict.fromkeys(path for path, _ in chosen):
        ours = [f is not None for (p, _), f in all_of if p == path]
        print(f"{path:<36}{len(ours):>8}{sum(ours):>8}{sum(ours) / len(ours):>8.0%}")
        if sum(ours) < REQUIRED * len(ours):
            wrongs.append(f"{path}: fewer than {REQUIRED:.0%} killed")
    for path, mutant in (place for place, f in all_of if f is None):
        reason = why.get((path, mutant.text, mutant.change))
        print(f"\n{path}:{mutant.number}: {mutant.text}\n    {mutant.change}\n    survives: {reason or '?'}")
        if reason is None:
            wrongs.append(f"{path}:{mutant.number}: survives without a reason: {mutant.change}")
    return wrongs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="only files or folders of these names, such as ifca or engine")
    parser.add_argument("--all", action="store_true", help="every mutant, not only a fixed draw")
    parser.add_argument("-n", type=int, default=25, help="mutants of a file")
    parser.add_argument("-j", type=int, default=2, help="processes at a time")
    parser.add_argument("--plan", type=Path, default=Path("tests/mutants.yaml"))
    asked = parser.parse_args()
    plan = yaml.safe_load(asked.plan.read_text())
    names = {path: {Path(path).stem, Path(path).absolute().parent.name} for path in plan["tests"]}
    known = set().union(*names.values())
    if unknown := [name for name in asked.name if name not in known]:
        named = f"no file or folder of {asked.plan.name} is called {', '.join(unknown)}"
        parser.error(f"{named}; there are {', '.join(sorted(known))}")
    tests = {path: t for path, t in plan["tests"].items() if not asked.name or names[path] & set(asked.name)}
    why = {(path, r["line"], r["change"]): r["why"] for path, reasons in plan["reasons"].items() for r in reasons}

    warm_up(plan["warm"], plan["package"])
    every = [(path, mutant) for path in tests for mutant in mutants(Path(path).read_text())]
    there = {(path, mutant.text, mutant.change) for path, mutant in every}
    stale = [key for key in why if key[0] in tests and key not in there]
    few = [(p, m) for p in tests for m in drawn((mutant for path, mutant in every if path == p), asked.n)]
    chosen = every if asked.all else few
    wrongs = report(chosen, examine(tests, chosen, asked.j), why)
    wrongs += [f"{path}: a reason for what is not there: {text}: {change}" for path, text, change in stale]
    sys.exit("\n".join(wrongs) if wrongs else 0)


if __name__ == "__main__":
    main()
