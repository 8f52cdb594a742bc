"""``graphopt train-agent``, and optimisation with what it wrote."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from graphopt.rl.training import train
from tests.cli.test_full import limited

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo_regnet.onnx"
TOY = ROOT / "tests" / "rl" / "toy" / "toy.yaml"


def test_from_training_to_an_optimised_model(cli, tmp_path):
    trained = cli("train-agent", "--models", DEMO, "--preset", "debug", "--steps", "100", "--out", "agent")
    assert trained.code == 0, trained.err
    assert "training: " in trained.err and "demo_regnet" in trained.err and "written  agent" in trained.err
    files = {path.name for path in (tmp_path / "agent").iterdir()}
    assert {
        "manifest.json",
        "encoder.onnx",
        "rules.onnx",
        "controller.onnx",
        "progress.csv",
        "prices.sqlite",
        "logs",
    } <= files
    assert [name for name in files if name.startswith("prices")] == ["prices.sqlite"]  # all of them, in one file
    done = cli(
        "optimize",
        DEMO,
        "-o",
        "out.onnx",
        "--strategy",
        "rl",
        "--agent",
        "agent",
        "--trace",
        "t.json",
        "--budget",
        2,
        "--no-measure",
    )
    assert done.code == 0, done.err
    assert cli("replay", "t.json", DEMO, "-o", "again.onnx").code == 0
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    again = cli("train-agent", "--resume", "agent", "--steps", "150", "-q")
    assert again.code == 0 and again.err == ""


TRAIN = "train-agent", "--task", TOY, "--preset", "debug", "--steps", "50", "--out"


@pytest.fixture
def ctrl_c(monkeypatch):
    """Has a function of the training be preceded by Ctrl-C."""

    def press(owner, name):
        real, pressed = getattr(owner, name), []

        def interrupted(*arguments, **more):
            if not pressed:
                pressed.append(name)
                os.kill(os.getpid(), signal.SIGINT)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, interrupted)

    return press


@pytest.mark.parametrize("there", [False, True], ids=["new-folder", "old-folder"])
@pytest.mark.parametrize("name", ["keep_prices", "_Trainer.save", "_Trainer.go"])
def test_ctrl_c_before_anything_is_learned_aborts_and_leaves_nothing(cli, tmp_path, ctrl_c, name, there):
    out = tmp_path / "some" / "agent"
    if there:
        out.mkdir(parents=True)
        (out / "notes").touch()
    owner, _, function = name.rpartition(".")
    ctrl_c(getattr(train, owner) if owner else train, function)
    done = cli(*TRAIN, out)
    assert done.code == 130 and done.err.splitlines()[-1] == "error: aborted by Ctrl-C"
    assert "written" not in done.err
    assert [path.name for path in tmp_path.rglob("*")] == (["some", "agent", "notes"] if there else [])


def test_ctrl_c_while_it_learns_keeps_a_checkpoint_and_before_it_goes_on_the_one_before(cli, tmp_path, ctrl_c):
    ctrl_c(train._Trainer, "play")
    done = cli(*TRAIN, "agent")
    assert done.code == 0 and "stopping with this iteration" in done.err
    assert ", 1 update" in done.err and "1 updates" not in done.err and "written" in done.err
    before = {path.name: path.read_bytes() for path in (tmp_path / "agent").iterdir() if path.is_file()}
    ctrl_c(train._Trainer, "restore")
    done = cli("train-agent", "--resume", "agent", "--steps", "500")
    assert done.code == 130 and "written" not in done.err
    assert {path.name: path.read_bytes() for path in (tmp_path / "agent").iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--task", "cots"), "error: unknown task 'cots'"),
        (("--task", "none.yaml"), "error: none.yaml: can't be read"),
        (("--algo", "dqn"), "error: unknown algorithm 'dqn'"),
        (("--preset", "tiny"), "error: unknown preset 'tiny'"),
        (("--device", "gpu"), "error: unknown device 'gpu'"),
        (("--executor", "threads"), "error: unknown executor 'threads'"),
        (("--ray-address", "auto"), "error: an address belongs to the executor ray"),
        (("--executor", "processes", "--workers", "0"), "error: an executor needs at least one worker"),
        (("--workers", "4"), "error: --workers belongs to the executor processes or ray, not to inline"),
        (("--steps", "-1"), "error: --steps must be above 0"),
        (("--seed", "-1"), "error: --seed must be a whole number of at least 0, not -1"),
        (("--pretrain", "-1"), "error: --pretrain must be a whole number of at least 0, not -1"),
        (("--models", "nothing.onnx"), "error: nothing.onnx: neither a file nor a model of the zoo"),
        (("--models", "."), "error: .: no .onnx file in this folder"),
        (("--resume", "nowhere"), "error: nowhere: no agent"),
        (("--resume", "nowhere", "--seed", "1"), "error: --seed was chosen when the run began"),
        (("--out", "file/agent"), "error: file/agent: can't be made"),
    ],
)
def test_what_makes_no_sense_is_one_line(cli, tmp_path, arguments, message):
    (tmp_path / "file").touch()
    base = () if "--resume" in arguments or "--task" in arguments else ("--task", TOY)
    outcome = cli("train-agent", *base, *arguments)
    assert outcome.code in (1, 2)
    assert outcome.error_lines()[0].startswith(message)
    assert not (tmp_path / "agent-toy").exists()


@pytest.mark.skipif(os.name == "nt", reason="limits of Unix")
def test_a_full_disk_is_one_line(tmp_path):
    done = limited(tmp_path, 60_000, *TRAIN, "agent", "-q")
    assert done.returncode == 1 and "internal" not in done.stderr
    assert done.stderr.startswith("error: agent/weights-0.safetensors: can't be written: "), done.stderr
    assert done.stderr.splitlines()[1:] == ["hint: free some space, or choose another place"]
    assert not (tmp_path / "agent").exists()


def test_a_strategy_and_its_agent_belong_together(cli):
    wrong = cli("optimize", DEMO, "-o", "x.onnx", "--agent", "somewhere")
    assert "an agent belongs to strategy rl or world-model" in wrong.error_lines()[0]
    missing = cli("optimize", DEMO, "-o", "x.onnx", "--strategy", "rl", "--agent", "somewhere")
    assert "somewhere: no agent" in missing.error_lines()[0]
