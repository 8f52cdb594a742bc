"""The whole run on a few operators: what it finds, that it can be killed, and what it says to rubbish."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from graphopt.cli.main import run
from graphopt.errors import GraphoptError, UsageError
from graphopt.execution import make_executor
from graphopt.files import alone
from graphopt.prover.evidence import Verdict
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.library import lint, load_library
from graphopt.synth.draft import weakened
from graphopt.synth.emit import HEADER, formula, write_pack
from graphopt.synth.generalise import generalise
from graphopt.synth.generate import LIMIT, Generator, Kept, Plan
from graphopt.synth.graphs import Rewriter
from graphopt.synth.journal import Journal, OutOfTime
from graphopt.synth.work import Attacked, Usage, check, enumerate_world, prove_group
from graphopt.synth.worlds import select
from tests.synth.sides import axis, node, pair, perm

ROOT = Path(__file__).resolve().parents[2]
OPS = ("--ops", "Relu,Transpose", "--depth", "2")
MORE = ("--ops", "Neg,Concat,Transpose", "--depth", "3")
LAWS = {
    OPS: pair(
        [node("Transpose", "x", form=perm(0, 2, 1)), node("Transpose", (0, 0), form=perm(2, 1, 0))],
        [node("Transpose", "x", form=perm(1, 2, 0))],
        x=(5, 7, 2),
    ),
    MORE: pair(
        [node("Transpose", "x", form=perm(1, 0)), node("Transpose", "z", form=perm(1, 0)), node("Concat", (0, 0), (1, 0), form=axis(0))],
        [node("Concat", "x", "z", form=axis(1)), node("Transpose", (0, 0), form=perm(1, 0))],
        x=(5, 7), z=(5, 2),
    ),
}  # fmt: skip
"""What everybody knows of these operators."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "graphopt", "rules", "generate", *map(str, arguments)]


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module", params=[OPS, pytest.param(MORE, marks=pytest.mark.thorough)], ids=["few", "more"])
def ops(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Operators and depth."""
    return request.param


@pytest.fixture(scope="module")
def pack(ops: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("generated") / "pack"
    told = folder.parent / "chain.json"
    assert (
        run(["rules", "generate", *ops, "--executor", "inline", "--out", str(folder), "--json", str(told), "-q"]) == 0
    )
    return folder


def test_the_chain_is_told(pack: Path):
    told = json.loads((pack.parent / "chain.json").read_text())
    chain = told["chain"]
    assert chain["graphs"] > chain["skeletons"] > chain["kept"] == len(told["rules"]) > 0
    assert chain["pairs"] >= chain["skeletons"] == chain["unpaying"] + chain["derived"] + chain["open"]
    assert chain["proved"] == chain["kept"] + chain["subsumed"] + chain["merged"] + chain["fallen"]
    assert chain["finished"] and chain["seconds"] > 0 and chain["memory"] > 2**20
    assert not (pack / ".unfinished").exists()


def test_the_pack_loads_and_holds_what_everybody_knows(pack: Path, ops: tuple[str, ...]):
    rules = load_library((str(pack),)).rules
    assert not lint([pack])
    rewriter = Rewriter(rules)
    assert rewriter.derives(LAWS[ops]), formula(LAWS[ops])


def test_no_rule_follows_from_the_others(pack: Path):
    rules = load_library((str(pack),)).rules
    for rule in rules:
        example = build_example(rule, rule.examples["accept"][0])
        assert example.match is not None
        after, _ = apply(example.graph, example.match)
        assert not Rewriter([r for r in rules if r is not rule]).path(example.graph, after), rule.id


def test_a_killed_run_goes_on_to_the_same_pack_elsewhere(pack: Path, ops: tuple[str, ...], tmp_path: Path):
    out = tmp_path / "pack"
    started = subprocess.Popen(command(*ops, "--executor", "inline", "--out", out), cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        # Killed in the middle of proofs.
        while started.poll() is None and not any(f.stat().st_size for f in (out / ".unfinished").glob("*prove*")):
            time.sleep(0.02)
        assert started.poll() is None, "it ended before it could be killed"
        os.kill(started.pid, signal.SIGKILL)
    finally:
        started.wait()
    (half,) = list((out / ".unfinished").glob("*prove*"))[:1]
    before = half.read_bytes()
    half.write_bytes(before + b'{"derived": fal')  # a line that was cut off
    ended = subprocess.run(
        command(*ops, "--executor", "processes", "--workers", 1, "--out", out), cwd=ROOT, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    assert content(out) == content(pack)


def test_without_time_the_run_stops_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    out = tmp_path / "pack"
    assert run(["rules", "generate", *OPS, "--executor", "inline", "--budget", "0.0001", "--out", str(out)]) == 0
    assert "one go: give more minutes" in " ".join(capfd.readouterr().err.split())
    assert (out / ".unfinished").exists()


def test_a_proof_that_takes_long_ends_with_the_budget():
    law = LAWS[OPS].to_json()
    assert prove_group(([law], [], 0, [], None)).found[0]["outcome"] == "proved"
    with pytest.raises(OutOfTime):
        prove_group(([law], [], 0, [], time.time()))
    with pytest.raises(OutOfTime):
        generalise([LAWS[OPS]], until=time.time())


def test_a_world_that_takes_minutes_ends_with_the_budget():
    world = next(world for world in select((), 4) if world.name == "sigmoids")
    with pytest.raises(OutOfTime):
        enumerate_world((world, 3, 0, LIMIT, time.time()))


RUBBISH = {
    "an unknown operator": (["--ops", "Relu,Frobnicate"], "Frobnicate"),
    "an unknown preset": (["--ops", "matmuls"], "matmul"),
    "a preset and an operator": (["--ops", "matmul,Relu"], "--ops"),
    "no depth": (["--depth", "0"], "--depth"),
    "dimensions that can't differ": (["--max-dim", "1"], "--max-dim"),
    "no operator": (["--ops", " , "], "--ops must be names with commas between them, not ' , '"),
    "no time": (["--budget", "-1"], "--budget"),
    "time that is no number": (["--budget", "nan"], "--budget"),
    "a negative seed": (["--seed", "-1"], "--seed"),
    "an unknown executor": (["--executor", "cloud"], "cloud"),
    "no worker": (["--workers", "0"], "worker"),
    "workers and one process": (["--executor", "inline", "--workers", "3"], "--workers"),
}


@pytest.mark.parametrize(("arguments", "named"), RUBBISH.values(), ids=RUBBISH)
def test_rubbish_gets_one_line(arguments: list[str], named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    out = tmp_path / "pack"
    assert run(["rules", "generate", *arguments, "--out", str(out)]) == 2
    error, *hints = capfd.readouterr().err.splitlines()
    assert error.startswith("error: ") and named in error + "".join(hints)
    assert len(hints) <= 1
    assert not out.exists()


def test_rules_that_a_person_wrote_are_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    mine = tmp_path / "mine.yaml"
    mine.write_text("family: mine\ndoc: Mine.\nrules: []\n")
    assert run(["rules", "generate", *OPS, "--out", str(tmp_path)]) == 2
    assert "mine.yaml" in capfd.readouterr().err
    assert mine.exists() and list(tmp_path.iterdir()) == [mine]


def test_a_pack_that_can_not_be_written_leaves_the_old_one(tmp_path: Path):
    old = tmp_path / "old.yaml"
    old.write_text(HEADER)
    (tmp_path / "evidence.lock").mkdir()
    with pytest.raises(UsageError, match=r"evidence\.lock is a folder"):
        write_pack(tmp_path, [])
    assert old.exists()


@pytest.mark.parametrize("name", ["evidence.lock", "relu.yaml"])
def test_the_report_is_no_part_of_the_pack(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    out = tmp_path / "pack"
    out.mkdir()
    assert run(["rules", "generate", *OPS, "--out", str(out), "--json", str(out / ".." / "pack" / name)]) == 2
    assert f"{name} would be part of the rules in" in capfd.readouterr().err
    assert not list(out.iterdir())


def test_a_file_is_no_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    file = tmp_path / "file"
    file.write_text("")
    assert run(["rules", "generate", *OPS, "--out", str(file)]) == 2
    assert "not a folder" in capfd.readouterr().err


def test_two_runs_do_not_share_what_is_unfinished(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """One would go on with the results of the other, and remove them at its end."""
    with alone(tmp_path, ""):
        assert run(["rules", "generate", *OPS, "--executor", "inline", "--out", str(tmp_path)]) == 2
    assert f"another graphopt is writing to {tmp_path}" in capfd.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("line", ["1", "[]", "{", '{"a": "x"}', "\udcff"])
def test_damaged_results_are_named(tmp_path: Path, line: str):
    journal = Journal(tmp_path / "unfinished", {}, None)
    stage = tmp_path / "unfinished" / "stage.jsonl"
    stage.write_text(line + "\n", errors="surrogateescape")
    with make_executor("inline") as executor, pytest.raises(GraphoptError, match=r"stage\.jsonl: damaged: "):
        [*journal.map("stage", executor, abs, [1, 2], dict, lambda told: 1 + told["a"])]


FALLEN = """  - id: ID
    doc: DOC
    equal: exact
    match:
      - m1 = Relu(x)
      - m2 = Relu(z)
      - y = Concat<axis = $i>(m1, m2)
    replace:
      - n1 = Concat<axis = i>(x, z)
      - y = Relu(n1)
    examples:
      accept:
        - {x: 4x3xf32, z: 4x3xf32, i: 0, opset: 18}
        - {x: Sx1xf16, z: SxSxf16, i: -1, opset: 18}
"""
"""Of float16 this runtime's Relu drops the sign of a zero or keeps it, by where the zero stands."""


def test_what_only_signs_of_zeros_speak_against_claims_less():
    """A condition that excludes the instance, as any could, would say nothing of the law."""
    told = check((FALLEN, 0))
    assert told.text == weakened(FALLEN) != FALLEN and not told.message
    assert told.verdict["verdict"] == "proved"
    assert not check((told.text, 0)).text


def lesser(task: tuple[str, int]) -> Attacked:
    verdict = asdict(Verdict("ID", "hash", "proved", "field 3"))
    return (
        Attacked("", {}, Usage.now(), weakened(task[0]), verdict)
        if weakened(task[0]) != task[0]
        else Attacked("", {}, Usage.now())
    )


def test_a_lesser_claim_takes_the_place_of_the_rule_with_its_evidence(tmp_path: Path):
    with make_executor("inline") as executor:
        generator = Generator(Plan(("Relu",)), executor, tmp_path / "unfinished")
        generator.kept = [Kept(FALLEN, (LAWS[OPS],), Verdict("ID", "hash", "proved", "terms 3"))]
        generator._attack("check", lesser, list(generator.kept))
    (kept,) = generator.kept
    assert kept.text == weakened(FALLEN) and kept.verdict.method == "field 3"
    assert generator.chain.fallen == 0
