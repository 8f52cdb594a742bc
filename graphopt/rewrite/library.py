"""The rule library: load, select, lint and index the rules of ``rules/``."""

from __future__ import annotations

import hashlib
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from graphopt.config import provider_name, rules_dir
from graphopt.documents import JSON_BYTES, DocumentError, checked, parse_json, read_text
from graphopt.errors import RuleError, UnknownNameError, UsageError, unexpected
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import UNIT, Graph, Node
from graphopt.rewrite.apply import apply
from graphopt.rewrite.cache import read_cached
from graphopt.rewrite.examples import Example, ExampleError, build_example
from graphopt.rewrite.match import Around, Match, Operator, Plan, plans
from graphopt.rewrite.schema import Rule, read_file

_CONTRIBUTED = ("cpu", "cuda", "directml")
"""Providers with kernels for ONNX Runtime's own operators. The others compile graphs of standard ones; a node that they do
not know is left to the CPU, with copies around it."""
LOCK = "evidence.lock"
GENERATED = "generated"
STANDARD = "standard"
PACKS = (STANDARD, GENERATED)
"""Names for whole packs: the hand-written library, which is loaded by default, and what was generated."""
SUFFIXES = (".yaml", ".yml")
"""What the names of rule files end in."""
_MOST = 20_000  # entries of a folder, and of those below it
VERDICTS = ("proved", "attacked")
"""Verdicts that let a rule load."""


@dataclass(frozen=True)
class Mistake:
    """A mistake that the linter found.

    Attributes:
        rule: Rule id, ``""`` for a whole file.
        where: ``file:line:column``.
        message: What is wrong.
        details: The traceback, where the linter itself failed.
    """

    rule: str
    where: str
    message: str
    details: str = ""

    @classmethod
    def of(cls, error: RuleError) -> Mistake:
        """What a reader complained about."""
        message = str(error).removeprefix(f"{error.where}: ")
        return cls(error.rule, error.where, message + (f" ({error.hint})" if error.hint else ""))

    def __str__(self) -> str:
        return f"{self.where}: {self.rule + ': ' if self.rule else ''}{self.message}"


@dataclass(frozen=True, eq=False)
class Library:
    """Rules, ready to be matched.

    Attributes:
        rules: In file order.
        ending: Whether what no search sees is matched, too: rules that say ``last``, and those that say ``hinted`` where no hint holds.
    """

    rules: tuple[Rule, ...]
    ending: bool = False

    @cached_property
    def by_id(self) -> dict[str, Rule]:
        """Rule by id."""
        return {rule.id: rule for rule in self.rules}

    @cached_property
    def hash(self) -> str:
        """One hash for the whole pack."""
        # The hints of such a rule decide where it is carried out without being asked for, or seen at all.
        text = "".join(
            sorted(
                r.id + r.hash + "".join([name, *(e.text for e in r.prefer)])
                if (name := "always" if r.always else "last" if r.last else "hinted" if r.hinted else "")
                else r.id + r.hash
                for r in self.rules
            )
        )
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @cached_property
    def always(self) -> Library:
        """The rules that never cost: those of the normal form."""
        return Library(tuple(rule for rule in self.rules if rule.always))

    @cached_property
    def drops(self) -> Library:
        """Those that take something away and put nothing in its place."""
        return Library(tuple(rule for rule in self.rules if all(line.alias for line in rule.replace)), self.ending)

    @cached_property
    def last(self) -> Library:
        """The rules of the form in which a model is written: those that come last, and those that never cost."""
        return Library(tuple(rule for rule in self.rules if rule.always or rule.last), ending=True)

    @cached_property
    def whole(self) -> Library:
        """All of the rules wherever they are true."""
        return Library(self.rules, ending=True)

    def shows(self, match: Match) -> bool:
        """Whether a match is one of those that are looked for."""
        return self.ending or match.preferred or not match.rule.hinted

    @cached_property
    def _plans(self) -> dict[Operator, list[Plan]]:
        found: dict[Operator, list[Plan]] = {}
        for rule in self.rules:
            for plan in plans(rule) if self.ending or not rule.last else ():
                for op in rule.match[plan.anchor].ops:
                    found.setdefault(op, []).append(plan)
        return found

    @cached_property
    def _near(self) -> dict[Around, tuple[Plan, ...]]:
        """Plans by what is around a node: few surroundings differ, and few of hundreds of plans fit each."""
        return {}

    def first_plans(self, node: Node) -> Sequence[Plan]:
        """Plans whose rule's first line can stand for a node: each match of a graph is found by one of them."""
        return [plan for plan in self._plans.get((node.domain, node.op), ()) if plan.anchor == 0]

    def plans(self, graph: Graph, node: Node) -> Sequence[Plan]:
        """Plans that may start at a node, at any line: together they find every match with the node in it."""
        if node.hidden and node.opaque != UNIT:
            return ()
        around = Around.of(graph, node)
        found = self._near.get(around)
        if found is None:
            found = self._near[around] = tuple(
                plan for plan in self._plans.get(around.op, ()) if plan.may_start(around)
            )
        return [plan for plan in found if plan.rule.sees(node)] if node.opaque == UNIT else found

    def without(self, rules: Iterable[str]) -> Library:
        """The library without some rules."""
        gone = set(rules)
        return Library(tuple(r for r in self.rules if r.id not in gone), self.ending)


def rule_files(paths: Sequence[Path] = ()) -> list[Path]:
    """The YAML files of some files and folders, by default of the hand-written library.

    Raises:
        RuleError: There is no such file or folder, or no rule file in it.
    """
    files: list[Path] = []
    for path in paths or [rules_dir()]:
        if path.is_dir():
            found = sorted(_rule_files_in(path))
            if not found:
                raise RuleError("no rule file in this folder", str(path), "rule files end in .yaml or .yml")
            files += found
        elif path.exists():
            files.append(path)
        else:
            raise RuleError("no such file or folder", str(path))
    return files


def _rule_files_in(folder: Path) -> Iterator[Path]:
    """The rule files in a folder and below it; of our own the generated ones are none, which lie below.

    Raises:
        RuleError: There is too much in it.
    """
    seen = 0
    for here, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > _MOST:
            hint = "name the folder in which the rules are"
            raise RuleError(f"more than {_MOST:,} files and folders to look through for rules", str(folder), hint)
        yield from (path for name in names if (path := Path(here, name)).suffix in SUFFIXES)
        if folder.resolve() == rules_dir():
            return


def pack_files(pack: str) -> list[Path]:
    """The files of one of :data:`PACKS`."""
    return rule_files() if pack == STANDARD else sorted((rules_dir() / GENERATED).glob("*.yaml"))


def load_library(
    selection: Sequence[str] = (),
    exclude: Sequence[str] = (),
    provider: str = "cpu",
    portable: bool = False,
    *,
    evidence: bool = True,
    max_error: float | None = None,
    problems: list[RuleError] | None = None,
) -> Library:
    """Load rules.

    Args:
        selection: Files, folders, packs, families or rule ids; empty for the hand-written library.
        exclude: Rule ids or families to leave out.
        provider: Families that name providers load only for those, and rules whose replacement uses operators outside
            the ONNX standard only for providers that have kernels for them.
        portable: Leave out rules whose replacement uses operators outside the ONNX standard.
        evidence: Leave out shipped rules without recorded evidence for their present text.
        max_error: Leave out rules whose evidence records a larger rounding error, relative to the largest result; an
            approximation without one counts with the bound that it claims.
        problems: Takes what is wrong with rules, which are left out then; without it, that is an error.

    Raises:
        RuleError: A rule file is wrong, two rules share an id, or a file of the caller's holds rules without evidence.
            It names all that is wrong.
        UsageError: A family or rule that does not exist.
    """
    places = [s for s in selection if s.endswith(SUFFIXES) or (Path(s).is_dir() and s not in PACKS)]
    paths = [Path(s) for s in places]
    names = [s for s in selection if s not in places and s not in PACKS]
    packs = [s for s in PACKS if s in selection or not selection]
    rules: list[Rule] = []
    wrong: list[RuleError] = []
    known: set[str] = set()
    for group, wanted in (
        (rule_files(paths) if paths else [], []),
        ([file for pack in packs for file in pack_files(pack) if selection or pack == STANDARD], []),
        ([file for pack in PACKS for file in pack_files(pack)] if names else [], names),
    ):
        loaded, errors = _read(group)
        wrong += errors
        if wanted:
            _see_known(wanted, _names(loaded) | set(PACKS))
            loaded = [r for r in loaded if r.family in wanted or r.id in wanted]
        known |= _names(loaded)  # of those that are left out below, too: whoever excludes one is not mistaken
        if evidence:
            folders = {folder: read_evidence(folder / LOCK) for folder in {p.parent for p in group}}
            locks = {p: folders[p.parent] for p in group}
            wrong += _unproved([r for r in loaded if not _proved(r, locks)])
            loaded = [r for r in loaded if _proved(r, locks) and not _coarse(r, locks, max_error)]
        rules += loaded
    _see_known(exclude, known)
    rules = [r for r in rules if r.id not in exclude and r.family not in exclude]
    provider = provider_name(provider)
    standard = portable or provider not in _CONTRIBUTED
    rules = [r for r in rules if (not r.providers or provider in r.providers) and not (standard and r.contributed)]
    seen: dict[str, Rule] = {}
    for rule in rules:
        if rule.id in seen and seen[rule.id].where_at != rule.where_at:
            wrong.append(RuleError(f"rule {rule.id!r} exists already, at {seen[rule.id].where_at}", rule.where_at))
            continue
        seen[rule.id] = rule
    if problems is not None:
        problems += wrong
    elif wrong:
        raise RuleError.of(wrong)
    return Library(tuple(seen.values()))


def _names(rules: Iterable[Rule]) -> set[str]:
    """The names by which some rules can be chosen: their families' and their own."""
    return {name for rule in rules for name in (rule.family, rule.id)}


def _see_known(chosen: Iterable[str], known: set[str]) -> None:
    """See that rules and families exist.

    Raises:
        UsageError: One does not; a file of another ending may have been meant.
    """
    for name in chosen:
        if name not in known and Path(name).is_file():
            raise UsageError(f"{name} is no rule file", "rule files end in .yaml or .yml")
        if name not in known:
            raise UnknownNameError("rule or family", name, known, "graphopt rules list")


def read_evidence(path: Path) -> dict[str, Mapping[str, Any]]:
    """Recorded evidence by rule id; empty when there is no file."""
    try:
        return dict(_evidence(read_text(path, JSON_BYTES)))
    except FileNotFoundError:
        return {}
    except (OSError, DocumentError) as error:
        hint = f"restore it, or remove it and record the evidence again: graphopt rules check {path.parent} --update"
        raise RuleError(f"not a valid evidence file: {error}", str(path), hint) from error


@lru_cache(maxsize=4)
def _evidence(text: str) -> Mapping[str, Mapping[str, Any]]:
    data = checked(Mapping[str, Any], parse_json(text), "it")
    found: Mapping[str, Mapping[str, Any]] = checked(Mapping[str, Mapping[str, Any]], data.get("rules", {}), "'rules'")
    return found


def _read(files: Sequence[Path]) -> tuple[list[Rule], list[RuleError]]:
    """The good rules of some files, and what is wrong with the others."""
    rules: list[Rule] = []
    wrong: list[RuleError] = []
    for file in files:
        good, errors = read_cached(file)
        rules += good
        wrong += errors
    return rules, wrong


def file_of(rule: Rule) -> Path:
    """The file that a rule was read from."""
    return Path(rule.where_at.rsplit(":", 2)[0])


def _proved(rule: Rule, locks: Mapping[Path, Mapping[str, Mapping[str, Any]]]) -> bool:
    entry = locks[file_of(rule)].get(rule.id)
    return entry is not None and entry.get("hash") == rule.hash and entry.get("verdict") in VERDICTS


def _coarse(rule: Rule, locks: Mapping[Path, Mapping[str, Mapping[str, Any]]], limit: float | None) -> bool:
    """Whether a rule rounds worse than a limit; nothing is recorded of most rules, which only move or merge sums.

    Of an approximation there is always something to go by: what it claims, which is what it may cost.
    """
    error = locks[file_of(rule)][rule.id].get("error", rule.bound)
    return limit is not None and isinstance(error, int | float) and error > limit


def _unproved(rules: Sequence[Rule]) -> Iterator[RuleError]:
    """A complaint for each of the caller's files with such rules; of shipped ones, they are silently left out."""
    files: dict[Path, list[Rule]] = {}
    for rule in rules:
        if not file_of(rule).is_relative_to(rules_dir()):
            files.setdefault(file_of(rule), []).append(rule)
    for file, found in files.items():
        names = ", ".join(repr(rule.id) for rule in found)
        what = (
            f"rule {names} has no evidence for its" if len(found) == 1 else f"rules {names} have no evidence for their"
        )
        yield RuleError(f"{what} present text", found[0].where_at, f"run: graphopt rules check {file} --update")


def lint(paths: Sequence[Path] = ()) -> list[Mistake]:
    """Everything that is wrong with some rule files, examples included (their numbers are compared elsewhere)."""
    problems: list[Mistake] = []
    seen: dict[str, str] = {}
    for file in rule_files(paths):
        rules, errors = read_file(file)
        problems += map(Mistake.of, errors)
        for rule in rules:
            if rule.id in seen:
                problems.append(Mistake(rule.id, rule.where_at, f"the id is taken, at {seen[rule.id]}"))
            seen[rule.id] = rule.where_at
            try:
                problems += [Mistake(rule.id, rule.where_at, message) for message in lint_rule(rule)]
            except Exception as error:  # a mistake of ours; the other rules are looked at nevertheless
                problems.append(Mistake(rule.id, rule.where_at, unexpected(error), traceback.format_exc()))
    return problems


def _objections(rule: Rule, example: Example) -> Iterator[str]:
    """What speaks against carrying out a rule where it matches."""
    assert example.match is not None
    try:
        after, _ = apply(example.graph, example.match)
    except RefusedError as error:
        yield f"the engine refuses the rewrite: {error}"
        return
    before, nodes = example.graph.live_nodes(), after.live_nodes()
    if rule.always and nodes > before:
        yield f"'always', but {before} nodes become {nodes}"


def lint_rule(rule: Rule) -> list[str]:
    """What is wrong with one rule and its examples."""
    found: list[str] = []
    try:
        plans(rule)
    except RuleError as error:
        return [str(error)]
    accepts, rejects = rule.examples["accept"], rule.examples["reject"]
    if not accepts:
        found.append("no accepting example")
    for i, case in enumerate(accepts):
        try:
            example = build_example(rule, case)
        except ExampleError as error:
            found.append(f"accept {i}: {error}")
            continue
        if example.match is None:
            found.append(f"accept {i}: {example.why()}")
        else:
            found += [f"accept {i}: {message}" for message in _objections(rule, example)]
    missed = set(range(len(rule.where)))
    instead: list[str] = []
    for i, case in enumerate(rejects):
        try:
            example = build_example(rule, case)
        except ExampleError as error:
            found.append(f"reject {i}: {error}")
            continue
        if example.match is not None:
            found.append(f"reject {i}: matches")
        elif example.failing is not None:
            missed.discard(example.failing)
        instead.append(f"reject {i} {'matches' if example.match is not None else example.why()}")
    told = "; ".join(instead) or "there is none"
    found += [f"no reject fails on 'where' line {i + 1} first, {rule.where[i].text!r}: {told}" for i in sorted(missed)]
    return found
