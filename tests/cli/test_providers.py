"""`graphopt providers`, with whatever is installed here."""

from __future__ import annotations

import json

import onnxruntime


def test_screen(cli):
    outcome = cli("providers")
    assert outcome.code == 0 and not outcome.err
    rows = {line.split()[0]: line for line in outcome.out.splitlines() if line.strip()}
    assert " works " in rows["cpu"] and onnxruntime.__version__ in rows["cpu"]
    assert max(map(len, outcome.out.splitlines())) <= 100


def test_json(cli):
    outcome = cli("providers", "--json", "-")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert document["schema"] == "graphopt.providers/1"
    assert any(package["name"].startswith("onnxruntime") for package in document["packages"])
    entries = {entry["name"]: entry for entry in document["providers"]}
    assert {"cpu", "cuda", "tensorrt", "openvino", "coreml", "directml", "qnn"} <= set(entries)
    assert entries["cpu"]["state"] == "works" and entries["cpu"]["device"] and not entries["cpu"]["note"]
    for entry in entries.values():
        assert entry["state"] in ("works", "fails", "absent")
        assert (entry["state"] == "works") != bool(entry["note"])
        assert bool(entry["package"]) == (entry["state"] != "absent")


def test_json_to_a_file(cli, tmp_path):
    outcome = cli("providers", "--json", "providers.json")
    assert outcome.code == 0 and "cpu" in outcome.out
    assert json.loads((tmp_path / "providers.json").read_text())["providers"]
    assert cli("providers", "--json", "no/such/folder.json").code != 0
