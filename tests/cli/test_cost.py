"""``graphopt cost``: the store as a command sees it."""

from __future__ import annotations

import json

import pytest

from graphopt.cost.store import Store
from tests.test_api import grouped


@pytest.fixture
def store(cli):
    with Store() as made:
        made.put_many("a" * 16, {"one": 1.0, "two": 2.0})
        made.put_many("b" * 16, {"three": 3.0})
    return made


def sizes(cli) -> dict[str, int]:
    return json.loads(cli("cost", "show", "--json", "-").out)["environments"]


def test_show(cli, store):
    assert sizes(cli) == {"a" * 16: 2, "b" * 16: 1}
    shown = cli("cost", "show")
    assert shown.code == 0 and "a" * 16 in shown.out


def test_show_says_which_is_this_machine(cli, store):
    from graphopt.runtime.environment import fingerprint
    from graphopt.runtime.session import SessionConfig

    for threads, key, called in ((0, "here", "all cores"), (1, "one_thread", "one thread")):
        digest = fingerprint(SessionConfig(threads=threads)).digest
        store.put_many(digest, {"four": 4.0})
        assert json.loads(cli("cost", "show", "--json", "-").out)[key]["cpu"] == digest
        (row,) = [line for line in cli("cost", "show").out.splitlines() if line.startswith(digest)]
        assert f"this machine, cpu, {called}" in row


def test_clear_one_and_all(cli, store):
    assert cli("cost", "clear", "--environment", "a" * 16).code == 0
    assert sizes(cli) == {"b" * 16: 1}
    assert cli("cost", "clear").code == 0
    assert sizes(cli) == {}


def test_export_and_import(cli, store, tmp_path):
    file = tmp_path / "k.json"
    assert cli("cost", "export", file).code == 0
    printed = cli("cost", "export", "-")
    assert printed.out == file.read_text() and printed.err == "3 kernel times written to stdout\n"
    assert cli("cost", "clear").code == 0
    done = cli("cost", "import", file)
    assert done.code == 0, done.err
    with Store() as again:
        assert again.all("a" * 16) == {"one": 1.0, "two": 2.0}


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"schema": "x"}', '{"schema": "graphopt.kernels/1"}']
    + [
        f'{{"schema": "graphopt.kernels/1", "environments": {{"{name}": {{"one": {ms}}}}}}}'
        for name, ms in {
            "text": '"c"',
            "a flag": "true",
            "a" * 16: "-5",  # in the place of a time it would be none
            "not finite": "NaN",
            "large": "1" + 400 * "0",
            "half a character \\ud800": "1",
        }.items()
    ],
)
def test_rubbish_is_one_line(cli, store, tmp_path, content):
    file = tmp_path / "k.json"
    file.write_text(content)
    done = cli("cost", "import", file)
    assert done.code == 2
    assert done.err.startswith(f"error: {file}: not a file of kernel times: ") and "Traceback" not in done.err
    assert sizes(cli) == {"a" * 16: 2, "b" * 16: 1}
    with Store() as again:
        assert again.all("a" * 16) == {"one": 1.0, "two": 2.0}


@pytest.mark.parametrize("command", ["show", "clear", "clear --environment x", "export out.json", "import in.json"])
def test_a_damaged_store_is_not_taken_for_an_empty_one(cli, store, tmp_path, command):
    assert cli("cost", "export", "in.json").code == 0
    (tmp_path / "out.json").write_text("what was there")
    store.path.write_bytes(b"no database\n" * 1000)
    outcome = cli("cost", *command.split())
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [
        f"error: {store.path}: file is not a database",
        "hint: it is damaged: delete it",
    ]
    assert (tmp_path / "out.json").read_text() == "what was there"


def test_an_unknown_environment_is_named(cli, store):
    assert cli("cost", "clear", "--environment", "c").code == 2


def test_calibrate(cli, tmp_path):
    source = grouped(tmp_path / "m.onnx", size=8)
    done = cli("cost", "calibrate", source, "--graphs", 2, "--seconds", 0.1, "--svg", "p.svg", "--json", "c.json")
    assert done.code == 0, done.err
    assert "m.onnx" in done.out and "nothing was corrected" in done.err
    assert (tmp_path / "p.svg").read_text().startswith("<svg") and (tmp_path / "c.json").exists()
    quick = "--graphs", 2, "--seconds", 0.01, "--threads", 10**5
    assert not cli("cost", "calibrate", source, *quick, "-q").err
    assert cli("cost", "calibrate", source, "--svg", source).code == 2
    assert cli("cost", "calibrate", source, "--svg", "-").code == 2
    assert cli("cost", "calibrate", "none.onnx").code == 2
    assert cli("cost", "calibrate", source, "--graphs", 1).code == 2


def test_calibrate_heeds_settings_from_elsewhere(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_PROVIDER", "nonsense")
    done = cli("cost", "calibrate", grouped(tmp_path / "m.onnx", size=8))
    assert done.code == 2 and "nonsense" in done.error_lines()[0]


def test_a_store_that_can_not_be_made_is_told_in_words(cli, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    line = cli("cost", "show").error_lines()[0]
    assert line.endswith("not a directory") and "Errno" not in line
