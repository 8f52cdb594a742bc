"""Rules that were read before come back as they were; an entry that does not fit is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.config import rules_dir
from graphopt.errors import RuleError
from graphopt.rewrite import cache
from graphopt.rewrite.cache import read_cached
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.schema import Rule, read_file

RULES = """
family: test
doc: For tests.
rules:
  - id: drop-pair
    doc: Two negations cancel.
    equal: exact
    match: ["z = Neg<*how>(x)", "y = Neg(z)"]
    where: ["rank(x) == 2"]
    let: {n: "dim(x, 0) + 1"}
    replace: ["y = x"]
    examples: {accept: [{x: 2x3xf32}], reject: [{x: 3xf32}]}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "test.yaml"
    path.write_text(RULES)
    return path


def parsed(monkeypatch) -> list[str]:
    """The files that are parsed from now on."""
    seen, real = [], cache.parse_file

    def parse(text, name):
        seen.append(name)
        return real(text, name)

    monkeypatch.setattr(cache, "parse_file", parse)
    return seen


def from_another_process(path: Path) -> tuple[list[Rule], list[RuleError]]:
    """What a process reads that has read nothing before."""
    cache._known.clear()
    return read_cached(path)


def same(a: Rule, b: Rule) -> bool:
    return a.hash == b.hash and cache._plain(a) == cache._plain(b)


def test_a_file_is_parsed_once(place, monkeypatch):
    seen = parsed(monkeypatch)
    (first,), errors = read_cached(place)
    (again,), _ = from_another_process(place)
    assert seen == [str(place)] and errors == [] and same(first, again)
    for rule in (first, again):
        assert [build_example(rule, c).match is not None for k in ("accept", "reject") for c in rule.examples[k]] == [
            True, False,
        ]  # fmt: skip


def test_a_process_makes_the_rules_of_a_file_once(place, monkeypatch):
    (first,), _ = read_cached(place)
    (again,), _ = read_cached(place)
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(place.parent / "elsewhere"))
    (elsewhere,), _ = read_cached(place)
    assert first is again is elsewhere
    (other,), _ = from_another_process(place)
    assert other is not first and same(other, first)
    monkeypatch.setattr(cache, "_MOST", 2)
    for number in range(3):
        copy = place.with_name(f"{number}.yaml")
        copy.write_text(RULES)
        read_cached(copy)
    assert len(cache._known) <= 2


def test_all_shipped_rules_come_back_as_they_are(place):
    for file in sorted(rules_dir().glob("*.yaml")):
        plain, _ = read_file(file)
        from_another_process(file)
        kept, _ = from_another_process(file)
        assert all(same(a, b) for a, b in zip(plain, kept, strict=True)) and plain


def test_an_edited_file_is_parsed_again(place, monkeypatch):
    (first,), _ = read_cached(place)
    seen = parsed(monkeypatch)
    place.write_text(RULES.replace("rank(x) == 2", "rank(x) == 3"))
    (edited,), _ = read_cached(place)
    assert seen == [str(place)] and edited.hash != first.hash


@pytest.mark.parametrize("spoil", [
    lambda entry: b"",
    lambda entry: b"{}",
    lambda entry: entry[:-20],
    lambda entry: entry.partition(b"\n")[0] + b"\n[]",
    lambda entry: entry.replace(b"rank(x) == 2", b"rank(x) != 2"),  # reads like a rule, whose evidence is of another
])  # fmt: skip
def test_a_spoilt_entry_is_made_anew(place, monkeypatch, spoil):
    read_cached(place)
    (entry,) = (place.parent / "cache" / "rules").iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(spoil(whole))
    assert entry.read_bytes() != whole
    seen = parsed(monkeypatch)
    (rule,), _ = from_another_process(place)
    assert seen == [str(place)] and rule.id == "drop-pair"
    assert len(from_another_process(place)[0]) == 1 and len(seen) == 1


def test_without_a_place_for_it_rules_are_read_all_the_same(place, monkeypatch):
    (place.parent / "cache").write_text("in the way")
    assert [rule.id for rule in read_cached(place)[0]] == ["drop-pair"]


def test_a_mistake_is_told_each_time(place):
    place.write_text(RULES.replace("rank(x)", "rnk(x)"))
    for _ in range(2):
        rules, errors = read_cached(place)
        assert rules == [] and "rnk" in str(errors[0])
