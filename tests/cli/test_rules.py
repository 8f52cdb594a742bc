"""`graphopt rules`: what people see of the rule library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RULE = """\
family: mine
doc: A family of one.
rules:
  - id: drop-double-neg
    doc: two negations cancel
    equal: exact
    match:
      - y = Neg(x)
      - z = Neg(y)
    replace:
      - z = x
    examples:
      accept: [{x: 4x5xf32}]
      reject: []
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RULE, encoding="utf-8")
    return path


def test_list(cli):
    outcome = cli("rules", "list", "--json", "-")
    assert outcome.code == 0
    assert not outcome.err
    document = json.loads(outcome.out)
    assert document["schema"] == "graphopt.rules/1"
    rules = {rule["id"]: rule for rule in document["rules"]}
    assert len(rules) == len(document["rules"]) > 0
    assert all(rule["doc"] and rule["family"] and rule["equal"] for rule in rules.values())
    shown = cli("rules", "list")
    assert shown.code == 0
    assert not shown.err
    assert all(f"{name} " in shown.out for name in rules)


def test_list_one_family_or_leave_a_rule_out(cli):
    rules = json.loads(cli("rules", "list", "--json", "-").out)["rules"]
    first = rules[0]
    family = json.loads(cli("rules", "list", "--rules", first["family"], "--json", "-").out)["rules"]
    assert {rule["family"] for rule in family} == {first["family"]}
    rest = json.loads(cli("rules", "list", "--exclude", first["id"], "--json", "-").out)["rules"]
    assert {rule["id"] for rule in rest} == {rule["id"] for rule in rules} - {first["id"]}


def test_a_rule_is_one_line(cli, monkeypatch):
    rules = json.loads(cli("rules", "list", "--json", "-").out)["rules"]
    families = {rule["family"] for rule in rules}
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = cli("rules", "list").out.splitlines()
        assert len(lines) == 2 + len(rules) + len(families)
        assert max(map(len, lines)) <= int(columns)


def test_list_is_whole_for_other_programs(process):
    rules = json.loads(process("rules", "list", "--json", "-").out)["rules"]
    out = process("rules", "list").out
    assert all(rule["doc"] in out for rule in rules)


def test_show(cli):
    rule = json.loads(cli("rules", "list", "--json", "-").out)["rules"][0]
    outcome = cli("rules", "show", rule["id"])
    assert outcome.code == 0
    assert rule["id"] in outcome.out
    assert rule["family"] in outcome.out
    assert "=>" in outcome.out


def test_show_a_file_without_evidence(cli, mine):
    outcome = cli("rules", "show", "drop-double-neg", "--rules", mine)
    assert outcome.code == 0, outcome.err
    assert "z = Neg(y)" in outcome.out
    assert "mine.yaml:" in outcome.out


def test_show_unknown(cli):
    outcome = cli("rules", "show", "no-such-rule")
    assert outcome.code == 2
    assert outcome.error_lines()[0] == "error: unknown rule 'no-such-rule'"


def test_check_the_library(cli):
    outcome = cli("rules", "check")
    assert outcome.code == 0, outcome.err
    assert "0 failed" in outcome.err


def test_check_and_record_a_file(cli, mine):
    """A rule of the user's own loads once its evidence is recorded, and no longer after it was edited."""
    lists = ("rules", "list", "--rules", mine, "--json", "-")
    outcome = cli("rules", "check", mine)
    assert outcome.code == 1
    assert "1 without recorded evidence" in outcome.err
    assert "--update" in cli(*lists).error_lines()[1]
    outcome = cli("rules", "check", mine, "--update")
    assert outcome.code == 0, outcome.err
    assert cli("rules", "check", mine).code == 0
    assert [rule["id"] for rule in json.loads(cli(*lists).out)["rules"]] == ["drop-double-neg"]
    mine.write_text(RULE.replace("equal: exact", "equal: real"), encoding="utf-8")
    assert cli("rules", "check", mine).code == 1
    assert cli(*lists).code != 0


def test_check_finds_a_wrong_rule(cli, mine):
    mine.write_text(RULE.replace("- z = Neg(y)", "- z = Abs(y)"), encoding="utf-8")
    outcome = cli("rules", "check", mine, "--update", "--json", "-")
    assert outcome.code == 1
    assert "drop-double-neg" in outcome.err
    assert [rule["verdict"] for rule in json.loads(outcome.out)["rules"]] == ["failed"]
    assert cli("rules", "list", "--rules", mine).code != 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("Neg(y)", "Negg(y)"), "Neg"),
        (("equal: exact", "equal: roughly"), "roughly"),
        (("id: drop-double-neg", "idd: drop-double-neg"), "id"),
        (("[{x: 4x5xf32}]", "[]"), "no accepting example"),
        (("z = x", "z = w"), "w"),
        (("replace:", "replace: ["), "mine.yaml:"),
    ],
)
def test_check_finds(cli, mine, change, complaint):
    mine.write_text(RULE.replace(*change), encoding="utf-8")
    outcome = cli("rules", "check", mine)
    assert outcome.code == 1
    assert outcome.err.startswith(str(mine))
    assert complaint in outcome.err
    assert "Traceback" not in outcome.err


def test_check_what_is_not_there(cli):
    outcome = cli("rules", "check", "nothing.yaml")
    assert outcome.code == 2
    assert "nothing.yaml" in outcome.error_lines()[0]
