"""`graphopt rules`: what people see of the rule library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphopt.errors import RuleError
from graphopt.execution import make_executor

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
    assert document["schema"] == "graphopt.rules/2"
    rules = {rule["id"]: rule for rule in document["rules"]}
    assert len(rules) == len(document["rules"]) > 0
    keys = {"id", "family", "claim", "verdict", "all_sizes", "hash", "used", "doc"}
    assert all(rule.keys() == keys for rule in rules.values())
    assert all(rule[key] for rule in rules.values() for key in keys - {"used", "all_sizes"})
    assert all(rule["used"] >= 0 for rule in rules.values())
    assert {rule["verdict"] for rule in rules.values()} <= {"proved", "attacked"}
    assert len({rule["hash"] for rule in rules.values()}) > 1
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


def test_list_for_a_provider_that_does_not_exist(cli):
    outcome = cli("rules", "list", "--provider", "cudda")
    assert outcome.code == 2 and not outcome.out
    assert outcome.error_lines() == ["error: unknown provider 'cudda'", "hint: did you mean 'cuda'?"]
    assert cli("rules", "list", "--provider", "cuda").code == 0  # whether or not it is installed


def test_a_rule_is_one_line(cli, monkeypatch):
    rules = json.loads(cli("rules", "list", "--json", "-").out)["rules"]
    families = {rule["family"] for rule in rules}
    count = len(rules)
    proved, attacked = (sum(rule["verdict"] == verdict for rule in rules) for verdict in ("proved", "attacked"))
    general = sum(rule["all_sizes"] for rule in rules)
    shares = (
        f"{count} rules: {proved} proved ({100 * proved / count:.0f} %), {attacked} attacked; "
        f"{general} ({100 * general / count:.0f} %) for all sizes"
    )
    assert general < proved < count
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = cli("rules", "list").out.splitlines()
        assert len(lines) == 3 + len(rules) + len(families)
        assert lines[-1] == shares
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
    assert any(line.startswith("error ") for line in cli("rules", "show", "strassen-gemm").out.splitlines())


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_show_draws_both_sides(cli, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    out = cli("rules", "show", "sum-of-weights").out
    assert "○ m = MatMul(x, a)" in out
    assert "● y = MatMul(x, w)" in out
    assert ("\n  =>\n" in out) == (columns == "40")
    assert "uses(m) == 1 and uses(n) == 1" in " ".join(out.split())


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("drop-identity", "in the normal form"),
        ("linear-of-rows-is-gemm", "is written"),
        ("strassen-matmul", "only where 'prefer' holds"),
        ("sum-of-weights", None),
    ],
)
def test_show_says_who_uses_a_rule(cli, rule, words):
    used = [
        line.split(maxsplit=1)[1] for line in cli("rules", "show", rule).out.splitlines() if line.startswith("used ")
    ]
    assert (words in used[0]) if words else not used


def test_show_in_ascii(process):
    outcome = process("rules", "show", "sum-of-weights", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert outcome.code == 0, outcome.err
    assert "`-* y = MatMul(x, w)" in outcome.out
    assert outcome.out.isascii()


def test_show_a_file_without_evidence(cli, mine):
    outcome = cli("rules", "show", "drop-double-neg", "--rules", mine)
    assert outcome.code == 0, outcome.err
    assert "z = Neg(y)" in outcome.out
    assert "mine.yaml:" in outcome.out
    assert "none recorded" in outcome.out
    assert "--update" in outcome.out


def test_show_whatever_the_evidence_says(cli, mine):
    """What is recorded depends on how a rule was checked; unknown keys are left out."""
    from graphopt.rewrite.schema import read_rules

    entry = {
        "hash": read_rules(mine)[0].hash,
        "verdict": "proved",
        "method": "identity testing",
        "family": "ranks 0 to 4",
        "proved": 3,
        "false_accept": 2.5e-30,
        "seed": 0,
        "surprise": "[bold]",
    }
    lock = mine.with_name("evidence.lock")
    lock.write_text(json.dumps({"rules": {"drop-double-neg": entry}}), encoding="utf-8")
    show = ("rules", "show", "drop-double-neg", "--rules", mine)
    lines = [line.split(maxsplit=1) for line in cli(*show).out.splitlines()]
    shown = {line[0]: line[1].strip() for line in lines if len(line) == 2}
    assert shown["verdict"] == "proved"
    assert shown["proved"] == "3"
    assert shown["seed"] == "0"
    assert shown["hash"] == entry["hash"]
    assert "2.5e-30" in shown["false"]
    assert "surprise" not in shown
    mine.write_text(RULE.replace("equal: exact", "equal: real"), encoding="utf-8")
    assert "of another text" in cli(*show).out
    lock.write_text("[", encoding="utf-8")
    assert "evidence.lock" in cli(*show).error_lines()[0]


def test_show_unknown(cli):
    outcome = cli("rules", "show", "no-such-rule")
    assert outcome.code == 2
    assert outcome.error_lines()[0] == "error: unknown rule 'no-such-rule'"


def test_stats(cli, model):
    stats = ("rules", "stats", model, "--no-measure")
    outcome = cli(*stats, "--json", "-")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["schema"] == "graphopt.rule-stats/1"
    library = json.loads(cli("rules", "list", "--json", "-").out)["rules"]
    rules = {rule["id"]: rule for rule in document["rules"]}
    assert [rule["id"] for rule in library] == list(rules)
    assert all(rule["preferred"] <= rule["hits"] and rule["match_ms"] >= 0 for rule in rules.values())
    assert all(rule["tries"] for rule in rules.values() if rule["hits"])
    hits = {id for id, rule in rules.items() if rule["hits"] or rule["applied"]}
    assert "batch-norm-after-conv" in hits and len(hits) < len(rules)
    predicted = document["predicted_ms"]
    saved = sum(rule["gain_us"] for rule in rules.values())
    assert saved == pytest.approx((predicted["before"] - predicted["after"]) * 1e3)

    shown = cli(*stats)
    assert shown.code == 0, shown.err
    assert {id for id in rules if f"{id} " in shown.out} == hits
    assert f"all {len(rules)} rules" in shown.out
    everything = cli(*stats, "--all").out
    assert [id for id in rules if f"{id} " not in everything] == []
    lines = shown.out.splitlines()
    applied = [line.split()[-2] != "0" for line in lines[2 : 2 + len(hits)]]
    assert applied == sorted(applied, reverse=True)


def test_stats_of_some_rules(cli, model):
    stats = ("rules", "stats", model, "--no-measure", "--json", "-")
    rules = json.loads(cli(*stats, "--rules", "affine", "--exclude", "batch-norm-after-conv").out)["rules"]
    assert {rule["family"] for rule in rules} == {"affine"}
    assert "batch-norm-after-conv" not in {rule["id"] for rule in rules}


def test_the_rules_are_those_that_optimize_would_use(cli, model, monkeypatch):
    whole = len(json.loads(cli("rules", "list", "--json", "-").out)["rules"])
    exact = json.loads(cli("rules", "list", "--max-error", "0", "--json", "-").out)["rules"]
    assert 0 < len(exact) < whole
    monkeypatch.setenv("GRAPHOPT_MAX_ERROR", "0")
    assert json.loads(cli("rules", "list", "--json", "-").out)["rules"] == exact
    assert len(json.loads(cli("rules", "stats", model, "--no-measure", "--json", "-").out)["rules"]) == len(exact)


def test_stats_on_more_threads_than_there_are(cli, model):
    outcome = cli("rules", "stats", model, "--threads", str(10**20), "--rules", "affine")
    assert outcome.code == 0 and "threads asked for" in outcome.err, outcome.err


def test_stats_into_a_file(cli, model):
    outcome = cli("rules", "stats", model, "--no-measure", "--json", "stats.json")
    assert outcome.code == 0, outcome.err
    assert json.loads(model.with_name("stats.json").read_text())["nodes"] > 0
    assert "gain us" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["nothing.onnx"], 2, "no such file"),
        (["rubbish.onnx"], 1, "rubbish.onnx"),
        (["net.onnx", "--rules", "nonsense"], 2, "nonsense"),
        (["net.onnx", "--exclude", "nonsense"], 2, "nonsense"),
        (["net.onnx", "--rules", "nothing.yaml"], 1, "nothing.yaml"),
        (["net.onnx", "--budget", "0"], 2, "--budget"),
        (["net.onnx", "--dim", "n=2"], 2, "'n'"),
        (["net.onnx", "--json", "net.onnx"], 2, "never overwritten"),
        (["net.onnx", "--json", "nowhere/stats.json"], 2, "no such folder"),
        ([], 2, "MODEL"),
    ],
)
def test_stats_of_what_makes_no_sense(cli, model, arguments, code, complaint):
    model.with_name("rubbish.onnx").write_bytes(b"rubbish")
    outcome = cli("rules", "stats", *arguments)
    assert outcome.code == code
    assert complaint in outcome.error_lines()[0]
    assert not outcome.out


def test_check_the_library(cli):
    outcome = cli("rules", "check")
    assert outcome.code == 0, outcome.err
    assert "0 proved" in outcome.err and "rules unchanged since checked (--all" in outcome.err


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
    assert cli(*lists[:-2]).out.splitlines()[-1].startswith("1 rule: 1 proved (100 %), 0 attacked; ")
    mine.write_text(RULE.replace("equal: exact", "equal: real"), encoding="utf-8")
    assert cli("rules", "check", mine).code == 1
    assert cli(*lists).code != 0


def test_check_finds_a_wrong_rule(cli, mine):
    mine.write_text(RULE.replace("- z = Neg(y)", "- z = Abs(y)"), encoding="utf-8")
    outcome = cli("rules", "check", mine)
    assert outcome.code == 1 and "1 failed" in outcome.err and "record" not in outcome.err
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
    assert any(line.startswith(str(mine)) for line in outcome.err.splitlines())
    assert complaint in outcome.err
    assert "Traceback" not in outcome.err


def test_check_what_is_not_there(cli):
    outcome = cli("rules", "check", "nothing.yaml")
    assert outcome.code == 2
    assert "nothing.yaml" in outcome.error_lines()[0]


def test_a_folder_without_rules_is_no_folder_of_rules(cli, model, tmp_path):
    (tmp_path / "empty").mkdir()
    for command in (("rules", "check"), ("rules", "list", "--rules"), ("optimize", model, "--dry-run", "--rules")):
        outcome = cli(*command, "empty")
        assert outcome.code == 1
        assert outcome.error_lines() == [
            "error: empty: no rule file in this folder",
            "hint: rule files end in .yaml or .yml",
        ]


def test_check_takes_both_endings_of_a_folder(cli, mine, tmp_path):
    mine.rename(tmp_path / "mine.yml")
    outcome = cli("rules", "check", tmp_path, "--update")
    assert outcome.code == 0 and "1 proved" in outcome.err, outcome.err


def test_check_proves_what_changed_unless_asked_for_all(cli, mine, monkeypatch):
    assert cli("rules", "check", mine, "--update").code == 0
    outcome = cli("rules", "check", mine)
    assert outcome.code == 0 and "0 proved" in outcome.err and "1 rule unchanged" in outcome.err
    monkeypatch.setattr("graphopt.cli.check._EVERY", 0.0)
    for asked in (("--all",), ("--rule", "drop-double-neg")):
        outcome = cli("rules", "check", mine, *asked)
        # A long check tells its progress where there is no terminal, too.
        assert outcome.code == 0 and "1 of 1 rules, the last drop-double-neg" in outcome.err, outcome.err
        assert "1 proved" in outcome.err and "unchanged" not in outcome.err


def test_the_shell_completes_values():
    from graphopt.cli import options

    assert options.strategies("b") == ["backtracking", "beam"]
    assert "cuda" in options.providers("") and options.providers("te") == ["tensorrt"]
    assert "drop-identity" in options.rule_ids("drop-") and options.rule_ids("no such") == []
    assert "grouped-conv" in options.families("group") and "standard" in options.families("st")


BROKEN = (
    RULE
    + """\
  - id: neg-of-nothing
    doc: wrong in three places
    equal: roughly
    match:
      - y = Negg x
    where:
      - ranc(x) == 2
    replace:
      - y = x
  - id: abs-of-neg
    doc: the sign is lost anyway
    equal: exact
    match:
      - n = Neg(x)
      - y = Abs(n)
    replace:
      - y = Abs(z)
    examples:
      accept: [{x: 4x5xf32}]
"""
)


def test_all_that_is_wrong_is_told_and_the_good_rules_are_checked(cli, mine):
    mine.write_text(BROKEN, encoding="utf-8")
    outcome = cli("rules", "check", mine, "--update", "--json", "-")
    assert outcome.code == 1
    lines = outcome.err.splitlines()
    for place, text in ((17, "roughly"), (19, "expected '('"), (21, "'ranc'"), (31, "'z' is not defined")):
        assert any(f"mine.yaml:{place}:" in line and text in line for line in lines), (place, outcome.err)
    assert "4 mistakes" in lines[-1]
    document = json.loads(outcome.out)
    assert [(rule["id"], rule["verdict"]) for rule in document["rules"]] == [("drop-double-neg", "proved")]
    assert {rule["id"] for rule in document["unread"]} == {"neg-of-nothing", "abs-of-neg"}
    listed = cli("rules", "list", "--rules", mine, "--json", "-")
    assert listed.code == 1
    assert [rule["id"] for rule in json.loads(listed.out)["rules"]] == ["drop-double-neg"]
    assert listed.err.count("error: ") == 4
    assert "mine.yaml:31:" in listed.err
    assert cli("rules", "show", "drop-double-neg", "--rules", mine).code == 0
    assert "'z' is not defined" in cli("rules", "show", "abs-of-neg", "--rules", mine).error_lines()[0]


def test_evidence_is_kept_while_a_rule_can_not_be_read(cli, mine, tmp_path):
    assert cli("rules", "check", tmp_path, "--update").code == 0
    held = mine.with_name("evidence.lock").read_text()
    mine.write_text(RULE.replace("Neg(y)", "Neg y"), encoding="utf-8")
    assert cli("rules", "check", tmp_path, "--update").code == 1
    assert mine.with_name("evidence.lock").read_text() == held


def test_optimize_refuses_a_file_and_names_all_that_is_wrong(cli, mine, model):
    mine.write_text(BROKEN, encoding="utf-8")
    outcome = cli("optimize", model, "--rules", mine, "-o", "out.onnx")
    assert outcome.code == 1
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 5  # the good rule has no evidence
    assert "drop-double-neg" in outcome.err
    assert not Path("out.onnx").exists()


def test_a_check_that_breaks_leaves_the_other_rules_alone(cli, mine, monkeypatch):
    from graphopt.prover import evidence
    from graphopt.rewrite import library

    names = ["first", "broken", "third", "unlinted", "fifth"]
    parts = [RULE.split("rules:\n")[1].replace("drop-double-neg", name) for name in names]
    mine.write_text("family: mine\nrules:\n" + "".join(parts), encoding="utf-8")
    lint, check = library.lint_rule, evidence.check_rule

    def breaking(function, name):
        return lambda rule, *a, **k: {}["of ours"] if rule.id == name else function(rule, *a, **k)

    monkeypatch.setattr(library, "lint_rule", breaking(lint, "unlinted"))
    monkeypatch.setattr(evidence, "check_rule", breaking(check, "broken"))
    monkeypatch.setattr(evidence, "make_executor", lambda *_: make_executor("inline", 1))  # where the mistakes are
    outcome = cli("rules", "check", mine, "--json", "-", "--jobs", 1)
    assert outcome.code == 1
    verdicts = {rule["id"]: (rule["verdict"], rule["message"]) for rule in json.loads(outcome.out)["rules"]}
    wrong = ("failed", "unexpected KeyError: 'of ours'")
    assert verdicts == {name: wrong if name in ("broken", "unlinted") else ("proved", "") for name in names}
    assert "Traceback" not in outcome.err
    assert cli("rules", "check", mine, "-v", "--jobs", 1).err.count("Traceback") == 2


def test_what_changes_while_rules_are_checked(cli, mine, tmp_path, monkeypatch):
    """What is proved is what was read; what another check has recorded meanwhile stays; what is no longer there goes."""
    from graphopt.prover import evidence

    lock, real = tmp_path / "evidence.lock", evidence.check_files
    lock.write_text('{"rules": {"gone": {}}}')
    added = {"hash": "0", "verdict": "proved"}

    def check(*work):
        checked = real(*work)
        found = next(checked)
        mine.unlink()
        lock.write_text(json.dumps({"rules": {"gone": {}, "added": added}}))
        yield from (found, *checked)

    parts = [RULE.split("rules:\n")[1].replace("drop-double-neg", name) for name in ("first", "second")]
    mine.write_text("family: mine\nrules:\n" + "".join(parts), encoding="utf-8")
    monkeypatch.setattr(evidence, "check_files", check)
    monkeypatch.setattr(evidence, "make_executor", lambda *_: make_executor("inline", 1))
    outcome = cli("rules", "check", tmp_path, "--update", "--jobs", 1)
    assert outcome.code == 0 and "2 proved" in outcome.err, outcome.err
    held = json.loads(lock.read_text())["rules"]
    assert [*held] == ["added", "first", "second"] and held["added"] == added


def test_a_rule_that_goes_before_it_is_checked_is_one_line(mine):
    from graphopt.prover.evidence import check_files

    with pytest.raises(RuleError, match="rule 'gone' is no longer there"):
        next(check_files([(mine, "gone")]))


CAPTURED = """\
family: mine
doc: A family of two.
rules:
  - id: join-constants-first
    doc: the parts of a Concat that are constant are one constant
    equal: exact
    match:
      - y = Concat<axis = $a>(c, d, x)
    where:
      - is_const(c, d)
    replace:
      - e = Concat<axis = a>(c, d)
      - y = Concat<axis = a>(e, x)
    examples:
      accept: [{c: "const 2x3xf32", d: "const 2x3xf32", x: 2x3xf32, a: 1}]
      reject: [{c: "2x3xf32", d: "const 2x3xf32", x: 2x3xf32, a: 1}]
""" + RULE.partition("rules:\n")[2]  # fmt: skip


def test_an_attribute_that_an_instance_lacks_stops_nothing(cli, tmp_path):
    path = tmp_path / "captured.yaml"
    path.write_text(CAPTURED, encoding="utf-8")
    outcome = cli("rules", "check", str(path), "--update")
    assert outcome.code == 0, outcome.err
    assert "2 proved" in outcome.out + outcome.err


def test_a_file_that_can_not_be_read_is_told_where_a_rule_is_not_found(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text("[")
    outcome = cli("rules", "check", "--rule", "no-such-rule", "mine.yaml")
    assert outcome.code == 2 and "mine.yaml" in outcome.err.splitlines()[0]
    assert outcome.err.splitlines()[1:] == ["error: unknown rule 'no-such-rule'", "hint: there is no rule at all"]
