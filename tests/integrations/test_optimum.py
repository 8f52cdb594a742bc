"""The recipe for Optimum (docs/how-to/optimum.md) with the real package: `pip install optimum-onnx` in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REASON = "optimum-onnx is not installed: pip install 'optimum-onnx[onnxruntime]' in an environment of its own"
optimum = pytest.importorskip("optimum.onnxruntime", reason=REASON)
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 64


def graphopt(*arguments: object, cwd: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHOPT_CACHE_DIR": str(cwd / "prices")}
    command = [
        sys.executable,
        "-m",
        "graphopt",
        "optimize",
        *map(str, arguments),
        "--strategy",
        "greedy",
        "--no-measure",
    ]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr


def ids(length: int) -> object:
    return torch.randint(3, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.slow
def test_an_encoder(tmp_path):
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).eval().save_pretrained(tmp_path / "plain")
    model = optimum.ORTModelForFeatureExtraction.from_pretrained(tmp_path / "plain", export=True)
    model.save_pretrained(tmp_path / "onnx")
    graphopt("onnx", "--out-dir", "fast", cwd=tmp_path)
    fast = optimum.ORTModelForFeatureExtraction.from_pretrained(tmp_path / "fast")
    given = {"input_ids": ids(9), "attention_mask": torch.ones(1, 9, dtype=torch.int64)}
    assert torch.allclose(model(**given).last_hidden_state, fast(**given).last_hidden_state, atol=1e-5)
    assert (tmp_path / "fast/config.json").read_bytes() == (tmp_path / "onnx/config.json").read_bytes()


@pytest.mark.slow
def test_encoder_decoder_and_decoder_with_past(tmp_path):
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    torch.manual_seed(0)
    transformers.T5ForConditionalGeneration(config).eval().save_pretrained(tmp_path / "plain")
    model = optimum.ORTModelForSeq2SeqLM.from_pretrained(tmp_path / "plain", export=True, use_merged=False)
    model.save_pretrained(tmp_path / "onnx")
    graphopt("onnx", "--out-dir", "fast", cwd=tmp_path)
    names = {path.name for path in (tmp_path / "onnx").glob("*.onnx")}
    assert len(names) >= 2 and {path.name for path in (tmp_path / "fast").glob("*.onnx")} == names
    fast = optimum.ORTModelForSeq2SeqLM.from_pretrained(tmp_path / "fast", use_merged=False)
    asked = {"input_ids": ids(7), "max_new_tokens": 8, "do_sample": False}
    assert model.generate(**asked).tolist() == fast.generate(**asked).tolist()
