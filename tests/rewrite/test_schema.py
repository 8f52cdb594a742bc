"""Rule files: what is read out of them, and what is wrong with those that are not read."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from graphopt.errors import RuleError
from graphopt.rewrite.schema import Rule, parse_file, parse_rules, read_rules

RULE = """
family: merge
doc: for tests
providers: [cpu, cuda]
rules:
  - id: merge-two
    doc: why
    equal: approx(1e-4)
    match:
      - y1 = MatMul<*m>(x, w1)
      - y2 = MatMul<*m>(x, w2)
    roots: {unordered: [y1, y2]}
    where:
      - rank(w1) == 2 and rank(w2) == 2
    prefer: is_const(w1, w2)
    let:
      widths: i64([dim(w1, -1), dim(w2, -1)])
      on: 1e-5
    replace:
      - w = Concat<axis = -1>(w1, w2)
      - y = MatMul<*m>(x, w)
      - y1, y2 = Split<axis = -1>(y, widths)
    examples:
      accept: [{x: 4x5xf32, w1: 5x3xf32, w2: 5x4xf32, m: {}}]
      reject:
        - {x: 4x5xf32, w1: [5x3xf32, f32], w2: 2x5x4xf32}
"""


def one(text: str = RULE) -> Rule:
    return parse_rules(text, "a.yaml")[0]


def test_all_parts() -> None:
    rule = one()
    assert (rule.id, rule.family, rule.doc, rule.claim, rule.bound) == ("merge-two", "merge", "why", "approx", 1e-4)
    assert [line.text for line in rule.match] == ["y1 = MatMul<*m>(x, w1)", "y2 = MatMul<*m>(x, w2)"]
    assert [line.outputs for line in rule.replace] == [("w",), ("y",), ("y1", "y2")]
    assert (rule.roots, rule.unordered, rule.leaves) == (("y1", "y2"), True, ("x", "w1", "w2"))
    assert [e.text for e in rule.where] == ["rank(w1) == 2 and rank(w2) == 2"]
    assert [e.text for e in rule.prefer] == ["is_const(w1, w2)"]
    assert [(name, e.text) for name, e in rule.let] == [("widths", "i64([dim(w1, -1), dim(w2, -1)])"), ("on", "1e-5")]
    assert rule.providers == ("cpu", "cuda")
    assert rule.where_at == "a.yaml:6:5"
    # YAML's own ideas of numbers and truth have no part in it.
    assert rule.examples["accept"] == [{"x": "4x5xf32", "w1": "5x3xf32", "w2": "5x4xf32", "m": {}}]
    assert rule.examples["reject"] == [{"x": "4x5xf32", "w1": ["5x3xf32", "f32"], "w2": "2x5x4xf32"}]
    assert not rule.contributed
    assert rule.source.splitlines()[0].strip() == "y1 = MatMul<*m>(x, w1)"


def test_places() -> None:
    rule = one()
    assert rule.match[1].where == "a.yaml:11:9"
    assert rule.where[0].where == "a.yaml:14:9"
    assert rule.prefer[0].where == "a.yaml:15:13"
    assert rule.let[1][1].where == "a.yaml:18:11"
    quoted = one(RULE.replace("- rank(w1) == 2 and rank(w2) == 2", "- 'rank(w1) == 2'"))
    assert quoted.where[0].where == "a.yaml:14:10"


def test_hash_is_of_what_the_rule_says() -> None:
    same = (
        RULE.replace("doc: why", "doc: another reason"),
        RULE.replace("prefer: is_const(w1, w2)", "prefer: is_const(w1)"),
        RULE.replace("4x5xf32", "6x5xf32"),
        RULE.replace("id: merge-two", "id: other"),
        RULE.replace("family: merge", "family: other"),
    )
    assert {one(text).hash for text in same} == {one().hash}
    other = (
        RULE.replace("approx(1e-4)", "approx(1e-3)"),
        RULE.replace("approx(1e-4)", "real"),
        RULE.replace("rank(w1) == 2 and", "rank(w1) == 3 and"),
        RULE.replace("dim(w1, -1), dim(w2, -1)", "dim(w1, 1), dim(w2, 1)"),
        RULE.replace("Concat<axis = -1>", "Concat<axis = 1>"),
        RULE.replace("{unordered: [y1, y2]}", "[y1, y2]"),
    )
    assert len({one(text).hash for text in other} | {one().hash}) == len(other) + 1


def test_contributed() -> None:
    simple = "family: f\nrules:\n- id: a\n  doc: d\n  equal: real\n  match: y = {}(x)\n  replace: y = {}(x)\n"
    for match, replace, contributed in (
        ("Relu", "com.microsoft.Gelu", True),
        ("com.microsoft.Gelu", "Relu", False),
        ("com.microsoft.Gelu", "com.microsoft.Gelu", False),
        ("Relu", "SimplifiedLayerNormalization", True),
        ("Relu", "Tanh", False),
    ):
        assert one(simple.format(match, replace)).contributed is contributed


def test_roots_by_default() -> None:
    text = RULE.replace("    roots: {unordered: [y1, y2]}\n", "")
    assert (one(text).roots, one(text).unordered) == (("y1", "y2"), False)


def swap(old: str, new: str) -> str:
    assert old in RULE
    return RULE.replace(old, new)


MISTAKES: dict[str, tuple[str, str, str, str | None]] = {
    # What is wrong: text, where, message, hint.
    "yaml": (swap("approx(1e-4)", "[1"), "a.yaml:9:10", "not valid YAML", None),
    "tab": (swap("    doc: why", "\tdoc: why"), "a.yaml:7:1", "not valid YAML", None),
    "empty": ("", "a.yaml:1:1", "expected 'family'", None),
    "list": ("- a", "a.yaml:1:1", "expected 'family'", None),
    "no family": (swap("family: merge", ""), "", "'family' is missing", None),
    "no rules": ("family: f\nrules: []", "a.yaml:1:1", "expected a list of rules", None),
    "rules a mapping": ("family: f\nrules: {a: 1}", "a.yaml:1:1", "expected a list of rules", None),
    "rule a text": ("family: f\nrules: [a]", "a.yaml:2:9", "a rule is a mapping", None),
    "unknown file key": (swap("providers:", "provider:"), "a.yaml:2:1", "unknown key 'provider'", "did you mean 'providers'?"),
    "unknown key": (swap("prefer:", "prefers:"), "a.yaml:6:5", "unknown key 'prefers'", "did you mean 'prefer'?"),
    "odd key": (swap("prefer:", "qqqq:"), "a.yaml:6:5", "unknown key 'qqqq'", None),
    "twice": (swap("doc: why", "doc: why\n    doc: again"), "a.yaml:8:5", "'doc' is given twice", None),
    "no id": (swap("  - id: merge-two\n    doc", "  - doc"), "a.yaml:6:5", "'id' is missing", None),
    "no doc": (swap("    doc: why\n", ""), "a.yaml:6:5", "'doc' is missing", None),
    "no claim": (swap("    equal: approx(1e-4)\n", ""), "a.yaml:6:5", "'equal' is missing", None),
    "other claim": (swap("approx(1e-4)", "maybe"), "a.yaml:8:12", "'equal' is exact, real or approx(bound)", None),
    "no bound": (swap("approx(1e-4)", "approx"), "a.yaml:8:12", "write approx(1e-4)", None),
    "odd bound": (swap("approx(1e-4)", "approx(x)"), "a.yaml:8:12", "write approx(1e-4)", None),
    "line": (swap("y2 = MatMul<*m>(x, w2)\n    roots", "y2 = MatMul<*m>(x w2)\n    roots"), "a.yaml:11:27", "expected ','", None),
    "expression": (swap("rank(w1) == 2 and", "ranc(w1) == 2 and"), "a.yaml:14:9", "unknown function 'ranc'", "did you mean 'rank'?"),
    "where a mapping": (swap("- rank(w1) == 2 and rank(w2) == 2", "- {a: b}"), "a.yaml:6:5", "'where': expected one line", None),
    "unknown name in where": (
        swap("rank(w2) == 2", "rank(w3) == 2"), "a.yaml:14:9", "'w3' is not defined", None,
    ),
    "unknown name in let": (swap("dim(w2, -1)", "dim(w3, -1)"), "a.yaml:17:15", "'w3' is not defined", None),
    "later let": (swap("i64([dim(w1, -1), dim(w2, -1)])", "i64([on])"), "a.yaml:17:15", "'on' is not defined", None),
    "let hides": (swap("      on:", "      w1:"), "a.yaml:18:11", "'w1' is defined twice", None),
    "let with a list": (swap("on: 1e-5", "on: [1]"), "a.yaml:6:5", "'on': expected one line of text", 'quote what looks like a list or a mapping to YAML: on: "[1, 2]"'),
    "let a text": (swap("      widths: i64([dim(w1, -1), dim(w2, -1)])\n      on: 1e-5\n", "      on\n"), "a.yaml:6:5", "'let': expected a mapping", None),
    "examples a list": (swap("    examples:\n      accept: [{x: 4x5xf32, w1: 5x3xf32, w2: 5x4xf32, m: {}}]\n      reject:\n", "    examples:\n"), "a.yaml:6:5", "'examples': expected a mapping", None),
    "reject a text": (swap("reject:\n        - {x: 4x5xf32, w1: [5x3xf32, f32], w2: 2x5x4xf32}", "reject: none"), "a.yaml:6:5", "'reject': expected a list", None),
    "roots a mapping": (swap("{unordered:", "{ordered:"), "a.yaml:12:12", "unknown key 'ordered'", "did you mean 'unordered'?"),
    "unordered a mapping": (swap("[y1, y2]}", "{y1: y2}}"), "", "expected one line of text", None),
    "odd root": (swap("{unordered: [y1, y2]}", "[[y1], y2]"), "a.yaml:6:5", "'roots': expected one line of text", None),
    "providers a mapping": (swap("[cpu, cuda]", "{cpu: 1}"), "a.yaml:2:1", "'providers': expected one line of text", None),
    "key a list": (swap("family: merge", "family: merge\n[a]: b"), "", "plain text as a key", None),
    "unknown name in replace": (swap("Concat<axis = -1>(w1, w2)", "Concat<axis = -1>(w1, w)"), "a.yaml:20:9", "'w' is not defined", "did you mean 'w2'?"),
    "unknown name in attribute": (swap("Concat<axis = -1>", "Concat<axis = z>"), "a.yaml:20:27", "'z' is not defined", None),
    "unknown rest": (swap("y = MatMul<*m>", "y = MatMul<*n>"), "a.yaml:21:9", "'n' is not defined", "did you mean 'on'?"),
    "unknown operator": (swap("y = MatMul<*m>", "y = $g"), "a.yaml:21:9", "'g' is not defined", None),
    "root read too early": (swap("Concat<axis = -1>(w1, w2)", "Concat<axis = -1>(w1, y2)"), "a.yaml:20:9", "reads 'y2' before", None),
    "defined twice in match": (
        swap("y2 = MatMul<*m>(x, w2)\n    roots", "y2 = MatMul<*m>(x, w2)\n      - y2 = Relu(x)\n    roots"),
        "a.yaml:12:9", "'y2' is defined twice", None,
    ),
    "value and attribute": (
        swap("y2 = MatMul<*m>(x, w2)\n    roots", "y2 = MatMul<*w1>(x, w2)\n    roots"),
        "a.yaml:11:9", "'w1' is the name of a value", None,
    ),
    "operand redefined": (swap("      - w = Concat", "      - x = Concat"), "a.yaml:20:9", "'x' is defined already", None),
    "new value twice": (swap("      - y = MatMul", "      - w = MatMul"), "a.yaml:21:9", "'w' is defined already", None),
    "other roots": (swap("unordered: [y1, y2]", "unordered: [y1]"), "a.yaml:6:5", "the roots ['y1'] are not", None),
    "no roots": (swap("- y1, y2 = Split", "- z1, z2 = Split").replace("roots: {unordered: [y1, y2]}", ""), "", "are not what", None),
    "no match": (swap("    match:\n      - y1 = MatMul<*m>(x, w1)\n      - y2 = MatMul<*m>(x, w2)\n", ""), "a.yaml:6:5", "needs 'match'", None),
    "alias in match": (swap("y1 = MatMul<*m>(x, w1)", "y1 = x"), "a.yaml:10:9", "belong to 'replace'", None),
    "each in match": (swap("y1 = MatMul<*m>(x, w1)", "each y1 = Relu(x...)"), "a.yaml:10:9", "belong to 'replace'", None),
    "lone number": (swap("y1 = MatMul<*m>(x, w1)", "y1 = Relu(1)"), "a.yaml:10:9", "only operand", None),
    "binds in replace": (swap("Concat<axis = -1>", "Concat<axis = $a>"), "a.yaml:20:9", "'$a' binds, which only 'match' does", "write the name alone: a"),
    "binds items in replace": (swap("Concat<axis = -1>", "Concat<axis = [$a, 1]>"), "a.yaml:20:9", "'$a' binds", "write the name alone: a"),
    "uses of an operand": (swap("rank(w1) == 2 and", "uses(x) == 1 and"), "a.yaml:14:9", "for values that the pattern makes", None),
    "other example part": (swap("accept:", "accepts:"), "", "unknown key 'accepts'", "did you mean 'accept'?"),
    "example a text": (swap("accept: [{x: 4x5xf32, w1: 5x3xf32, w2: 5x4xf32, m: {}}]", "accept: [x]"), "", "an example is a mapping", None),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    text, where, message, hint = MISTAKES[name]
    with pytest.raises(RuleError) as caught:
        parse_rules(text, "a.yaml")
    assert message in str(caught.value)
    assert caught.value.hint == hint
    if where:
        assert str(caught.value).startswith(f"{where}: ")
    assert "\n" not in str(caught.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    """Each with its place; what follows from another mistake is not told."""
    text = (
        RULE.replace("y1 = MatMul<*m>(x, w1)", "y1 = MatMul<*m>(x w1)")
        .replace("rank(w1) == 2 and", "ranc(w1) == 2 and")
        .replace("on: 1e-5", "on: 1e-5 +")
        .replace("approx(1e-4)", "maybe")
    )
    second = RULE.split("rules:\n")[1].replace("merge-two", "second").replace("dim(w2, -1)", "dim(w3, -1)")
    third = RULE.split("rules:\n")[1].replace("merge-two", "third")
    fourth = RULE.split("rules:\n")[1].replace("merge-two", "fourth").replace("doc: why", "doc: why\n    doc: again")
    rules, errors = parse_file(text + second + third + fourth, "a.yaml")
    assert [rule.id for rule in rules] == ["third"]
    places = [(error.where, error.rule) for error in errors]
    first = ["a.yaml:8:12", "a.yaml:10:27", "a.yaml:14:9", "a.yaml:18:11"]
    assert places[:4] == [(where, "merge-two") for where in first]
    assert [rule for _, rule in places[4:]] == ["second", "fourth"]
    assert all(where.startswith("a.yaml:") for where, _ in places)
    with pytest.raises(RuleError) as caught:
        parse_rules(text + second + third, "a.yaml")
    assert len(caught.value.others) == 4


def test_a_mistake_at_the_head_spoils_the_file() -> None:
    rules, errors = parse_file(swap("providers:", "provider:"), "a.yaml")
    assert not rules
    assert len(errors) == 1
    rules, errors = parse_file(swap("[cpu, cuda]", "[cpus, cudda]").replace("y1 = MatMul<", "y1 = matMul<"), "a.yaml")
    assert not rules
    assert [error.where for error in errors] == ["a.yaml:4:13", "a.yaml:4:19", "a.yaml:10:14"]


def test_a_mapping_that_holds_itself_is_a_mistake() -> None:
    rules, errors = parse_file(RULE + "  - &a {id: b, examples: *a}\n", "a.yaml")
    assert rules == []  # the parser of trees is not asked for such a file
    assert "the alias *a is part of what it stands for" in str(errors[0])


@pytest.mark.parametrize("number", ["0", "-1", "inf", "nan", "x"])
def test_a_bound_and_a_domain_are_positive_numbers(number: str) -> None:
    text = RULE.replace("approx(1e-4)", "approx(1e-4)\n    domain: " + number)
    assert "the largest absolute value" in str(parse_file(text, "a.yaml")[1][0])
    assert "write approx(1e-4)" in str(parse_file(swap("1e-4", number), "a.yaml")[1][0])
    assert one(RULE.replace("approx(1e-4)", "approx(1e-4)\n    domain: 30")).domain == 30


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "merge.yaml"
    with pytest.raises(RuleError, match=r"merge\.yaml: can't be read: no such file"):
        read_rules(path)
    path.write_text(RULE)
    assert [rule.id for rule in read_rules(path)] == ["merge-two"]
    assert read_rules(path)[0].where_at == f"{path}:6:5"
    path.write_bytes(b"family: \xff\xfe")
    with pytest.raises(RuleError, match="UTF-8"):
        read_rules(path)


def test_a_folded_line_is_one_line() -> None:
    text = textwrap.dedent(
        """
        family: f
        rules:
        - id: a
          doc: >-
            one
            two
          equal: real
          match: y = Relu(x)
          where:
            - rank(x) == 2
              and dim(x, 0) == ranc(x)
          replace: y = x
        """
    )
    with pytest.raises(RuleError, match="unknown function 'ranc'"):
        parse_rules(text, "a.yaml")
    assert parse_rules(text.replace("ranc", "rank"), "a.yaml")[0].doc == "one two"


def conditions(where: str, prefer: str = "is_const(w1, w2)", let: str = "") -> tuple[str, ...]:
    """What conditions come to, with lines of ``let`` before those that are there."""
    text = RULE.replace("rank(w1) == 2 and rank(w2) == 2", where).replace("is_const(w1, w2)", prefer)
    rule = one(text.replace("    let:\n", "    let:\n" + "".join(f"      {line}\n" for line in let.splitlines())))
    return tuple(e.text for e in (*rule.where, *rule.prefer))


def test_a_condition_reads_as_if_what_let_defines_stood_there() -> None:
    let = "k: dim(x, -1)\nhalf: k // 2\nboth: k + half"
    assert conditions("half > 1 and k in (2 * both, 4)", "both == half", let) == (
        "(dim(x, -1) // 2) > 1 and dim(x, -1) in (2 * (dim(x, -1) + (dim(x, -1) // 2)), 4)",
        "(dim(x, -1) + (dim(x, -1) // 2)) == (dim(x, -1) // 2)",
    )
    # A rule that says so is the same rule, so what is known of it holds.
    spelt = one(RULE.replace("rank(w1) == 2", "i64([dim(w1, -1), dim(w2, -1)]) == 2"))
    assert one(RULE.replace("rank(w1) == 2", "widths == 2")).hash == spelt.hash


def test_names_of_loops_are_their_own() -> None:
    let = "k: dim(x, 0)\nn: sum([q for q in range(k)])"
    assert conditions("all([k > 0 for k in shape(x)])", let=let)[0] == "all([k > 0 for k in shape(x)])"
    within = conditions("all([k > n for k in shape(x)]) and all([q > n for q in (1, 2)])", let=let)[0]
    assert within.count("sum([q for q in range(dim(x, 0))])") == 2
    for loop in ("k > 1 and all([k > 0 for k in shape(x)])", "all([x > k for x in (1, 2)])"):
        with pytest.raises(RuleError, match="is a name of a loop here") as caught:
            conditions(loop, let=let)
        assert caught.value.where == "a.yaml:14:9" and caught.value.hint == "give the loop another name"


@pytest.mark.parametrize(
    ("where", "let", "said"),
    [
        ("big > 0", "a: 'rank(x)" + " + rank(x)" * 40 + "'\nb: a + a + a\nbig: b + b", "longer than 2000"),
        ("later > 0", "", "'later' is not defined"),
        ("k > 0", "k: later + 1\nlater: rank(x)", "'later' is not defined"),
        ("x > 0", "x: rank(w1)", "'x' is defined twice"),
        ("k > 0", "k: (", "was never closed"),
    ],
)
def test_what_a_condition_can_not_name(where: str, let: str, said: str) -> None:
    with pytest.raises(RuleError, match=said):
        conditions(where, let=let)
