"""Which rules load: limits on their error, names that choose and leave out, files and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphopt.config import rules_dir
from graphopt.errors import RuleError, UnknownNameError, UsageError
from graphopt.rewrite.library import LOCK, load_library, read_evidence, rule_files
from graphopt.rewrite.schema import read_rules

RULE = """
family: mine
doc: for tests
rules:
  - id: mine-is-abs
    doc: why
    equal: {equal}
    match: [y = Abs(x)]
    replace: [n = Neg(x), y = Abs(n)]
"""


def written(folder: Path, equal: str, **evidence: float) -> str:
    """The file of a rule that loads."""
    path = folder / "mine.yaml"
    path.write_text(RULE.format(equal=equal), encoding="utf-8")
    (rule,) = read_rules(path)
    entry = {"hash": rule.hash, "verdict": "attacked", **evidence}
    (folder / LOCK).write_text(json.dumps({"rules": {rule.id: entry}}), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("equal", "evidence", "limit", "loads"),
    [
        ("approx(1e-5)", {}, 1e-5, True),
        ("approx(1e-5)", {}, 1e-6, False),
        ("approx(1e-5)", {"error": 1e-7}, 1e-6, True),  # measured: the claim need not be asked
        ("real", {}, 0.0, True),  # it only moves or merges sums
        ("real", {"error": 1e-5}, 1e-6, False),
    ],
)
def test_a_limit_holds_for_what_is_measured_and_else_for_what_is_claimed(tmp_path, equal, evidence, limit, loads):
    assert bool(load_library([written(tmp_path, equal, **evidence)], max_error=limit).rules) == loads


def test_no_error_at_all_leaves_no_approximation():
    rules, kept = load_library().rules, load_library(max_error=0.0).rules
    recorded = {name for name, entry in read_evidence(rules_dir() / LOCK).items() if "error" in entry}
    coarse = {rule.id for rule in rules if rule.bound or rule.id in recorded}
    assert {rule.id for rule in rules} - {rule.id for rule in kept} == coarse
    assert any(rule.claim == "approx" for rule in rules)


def test_a_rule_may_be_excluded_that_a_limit_leaves_out_already():
    assert load_library(exclude=["strassen-gemm"], max_error=0.0).hash == load_library(max_error=0.0).hash


def test_an_unknown_name_is_told_where_the_known_ones_stand():
    with pytest.raises(UnknownNameError) as error:
        load_library(["quux"])
    assert error.value.hint == "see graphopt rules list"


def test_a_file_of_another_ending_is_no_unknown_name(tmp_path):
    path = tmp_path / "rules.txt"
    path.write_text(RULE.format(equal="exact"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"rules\.txt is no rule file") as error:
        load_library([str(path)])
    assert error.value.hint == "rule files end in .yaml or .yml"


def test_a_folder_holds_rule_files_of_both_endings(tmp_path):
    path = Path(written(tmp_path, "exact"))
    other = path.rename(tmp_path / "mine.yml")
    assert rule_files([tmp_path]) == [other]
    assert [rule.id for rule in load_library([str(tmp_path)]).rules] == ["mine-is-abs"]


def test_a_folder_without_rules_is_an_error(tmp_path):
    for choose in (lambda: rule_files([tmp_path]), lambda: load_library([str(tmp_path)])):
        with pytest.raises(RuleError, match="no rule file in this folder") as error:
            choose()
        assert error.value.hint == "rule files end in .yaml or .yml"


def test_a_path_may_be_written_as_the_shell_completes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    written(folder, "exact")
    ways = [
        "mine",
        "mine/",
        "./mine",
        "./mine/mine.yaml",
        f"{folder}/",
        f"{folder}//mine.yaml",
        "../" + tmp_path.name + "/mine",
    ]
    for way in ways:
        assert [rule.id for rule in load_library([way], evidence=False).rules] == ["mine-is-abs"], way
