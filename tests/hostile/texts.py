"""Hostile rule files, tasks, traces, manifests, tables of kernel times and settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tests.cli.conftest import conv_net

Build = Callable[[Path], list[str]]


@dataclass(frozen=True)
class Case:
    """An input and a command that reads it.

    Attributes:
        name: For the table.
        build: Writes files into an empty folder and returns the arguments of ``graphopt`` to run there.
    """

    name: str
    build: Build


def model_in(folder: Path) -> str:
    """A sound small model."""
    path = folder / "net.onnx"
    onnx.save(conv_net(), path)
    return str(path)


def _file(name: str, content: str | bytes, *command: str) -> Build:
    """A command with one file, which ``FILE`` stands for."""

    def build(folder: Path) -> list[str]:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return [str(path) if word == "FILE" else model_in(folder) if word == "MODEL" else word for word in command]

    return build


RULE = """family: bad
doc: d
rules:
  - id: {id}
    doc: {doc}
    equal: exact
    match:
{match}
    where:
      - {where}
    let:
      n: {let}
    replace:
{replace}
    examples:
      accept: [{accept}]
      reject: [{reject}]
"""
FIELDS = {
    "id": "bad-rule", "doc": "d", "match": "      - y = Relu(x)", "where": "rank(x) == 2", "let": "1",
    "replace": "      - y = Relu(x)", "accept": "{x: 4x5xf32}", "reject": "{x: 5xf32}",
}  # fmt: skip


def rule(**fields: str) -> str:
    """A file of one rule with some parts replaced."""
    return RULE.format(**{**FIELDS, **fields})


def bomb(levels: int, wide: int = 9) -> str:
    """Aliases of aliases: ``wide ** levels`` values in a few hundred characters."""
    lines = ["a0: &a0 [" + ", ".join(["x"] * wide) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * wide) + "]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nfamily: *a{levels - 1}\n"


LINES_3000 = "\n".join(f"      - y{n + 1} = Relu(y{n})" for n in range(3000))
LINES_32 = "\n".join(f"      - y{n + 1} = Relu(y{n})" for n in range(32))

EXPRESSIONS = {
    "a tower of powers": "9**9**9**9 > 0",
    "a power in a product": "2**60000 * 2**60000 * 2**60000 > 0",
    "a repeated text": "len('a' * 10**10) > 0",
    "a repeated tuple": "len((1,) * 10**10) > 0",
    "a format": "'%10000000000d' % 1 == 'x'",
    "a long range": "len(range(10**12)) > 0",
    "loops in loops": "len([[[i for i in range(60000)] for j in range(60000)] for k in range(60000)]) > 0",
    "loops over a loop": "sum([sum([i for i in range(60000)]) for j in range(60000)]) > 0",
    "many brackets": "(" * 1500 + "1" + ")" * 1500,
    "many minuses": "-" * 1900 + "1 == 1",
    "many nots": "not " * 480 + "True",
    "a long sum": "+".join(["1"] * 950),
    "a very long sum": "+".join(["1"] * 200_000),
    "a zero byte": '"1 \\0 == 1"',
    "a number of 5000 digits": "9" * 5000 + " == 1",
    "a number of 1900 digits": "9" * 1900 + " == 1",
    "an import": "__import__('os')",
    "an attribute": "x.__class__",
    "a lambda": '"(lambda: 1)()"',
    "a conditional chain": "1 if 1 else " * 160 + "1",
    "a huge unit matrix": "len(eye(x, 100000)) > 0",
    "a huge constant": "len(full(x, (100000, 100000), 1)) > 0",
    "an unknown function": "nothing(x)",
}
EXAMPLES = {
    "a type of x": "{x: " + "x" * 60 + "!}",
    "a huge dimension": "{x: 99999999999999999999xf32}",
    "a huge constant": "{x: const 100000x100000xf32}",
    "a huge operand": "{x: 100000x100000xf32}",
    "nested data": "{x: 'const 1xf32 = " + "[" * 3000 + "]" * 3000 + "'}",
    "data of operators": "{x: 'const 1xf32 = " + "-" * 5000 + "1'}",
    "data that is a call": "{x: 'const 1xf32 = open(0)'}",
    "data that does not fit": "{x: 'const 2x2xf32 = [1, 2, 3]'}",
    "ragged data": "{x: 'const 2x2xf32 = [[1], 2]'}",
    "rank 500": "{x: " + "1x" * 500 + "f32}",
    "no type": "{x: {}}",
    "an opset of letters": "{x: 4x5xf32, opset: many}",
    "an opset of a million": "{x: 4x5xf32, opset: 1000000}",
    "a number": "5",
    "a list": "{x: [[[4x5xf32]]]}",
}


def rule_files() -> Iterator[Case]:
    """Files for ``rules check``, ``rules list`` and ``optimize --rules``."""
    check = ("rules", "check", "FILE")
    texts = {
        "an alias bomb": bomb(9), "a larger alias bomb": bomb(60), "a wide alias bomb": bomb(3, 500),
        "100,000 brackets": "[" * 100_000, "100,000 braces": "{" * 100_000, "100,000 dashes": "- " * 100_000,
        "100,000 closed brackets": "family: " + "[" * 100_000 + "]" * 100_000,
        "recursive YAML": "&a [*a]\n", "recursive rules": "family: f\ndoc: d\nrules: &r\n  - *r\n",
        "a recursive mapping": "&a\nfamily: f\ndoc: d\nrules: [*a]\n",
        "an unknown alias": "family: *nobody\n", "an unknown tag": "!!python/object/apply:os.system ['true']\n",
        "merge keys": "a: &a {family: f}\n<<: *a\n", "a list as key": "? [a, b]\n: c\n", "two documents": "a: 1\n---\nb: 2\n",
        "5 MB of rules": "# " + "x" * 5_000_000, "4 MB in one value": "family: " + "x" * 3_900_000,
        "300,000 values": "[" + "1," * 300_000 + "1]", "nothing": "", "a number": "5", "null": "null",
        "tabs": "family:\n\t- x\n", "only an anchor": "&a\n", "a bare percent": "%YAML 9.9\n---\nx: 1\n",
        "escapes in an id": rule(id='"\\e[2J\\e]0;owned\\a"'), "escapes in a family": rule().replace("family: bad", 'family: "\\e[31mred"'),
        "escapes in a doc": rule(doc='"\\e[2J clear"'), "escapes in a pattern": rule(match='      - "y = \\e[2JRelu(x)"'),
        "escapes in an attribute": rule(match="      - \"y = Relu<alpha = '\\e[2J'>(x)\""),
        "escapes in a key": rule() + '"\\e[2J": x\n', "an id of 1 MB": rule(id="a" * 60_000),
        "a pattern of 3,000 lines": rule(match=LINES_3000, replace="      - y3000 = Relu(y0)"),
        "a replacement of 3,000 lines": rule(replace=LINES_3000), "10,000 operands": rule(match=f"      - y = Concat({', '.join(['x'] * 10_000)})"),
        "300 operands": rule(match=f"      - y = Max({', '.join(f'x{n}' for n in range(300))})"),
        "10,000 operators": rule(match="      - y = " + "|".join(["Relu"] * 10_000) + ":f(x)"),
        "brackets in a line": rule(match="      - y = Relu<a = " + "(" * 900 + ">(x)"),
        "a pattern in a circle": rule(match="      - y = Relu(z)\n      - z = Relu(y)"),
        "a bound of letters": rule().replace("equal: exact", "equal: approx(many)"), "an infinite bound": rule().replace("equal: exact", "equal: approx(inf)"),
        "rules as text": "family: f\ndoc: d\nrules: none\n", "a rule that is a list": "family: f\ndoc: d\nrules: [[a]]\n",
        "examples as a list": rule().split("    examples:")[0] + "    examples: [a, b]\n", "providers as a mapping": rule().replace("doc: d\n", "doc: d\nproviders: {a: b}\n", 1),
        **{f"expression: {name}": rule(where=text) for name, text in EXPRESSIONS.items()},
        "let: a tower of powers": rule(let="9**9**9**9"), "let: a long range": rule(let="range(10**12)"),
        "attribute: a tower of powers": rule(match="      - y = Relu<alpha = 9**9**9**9>(x)"),
        **{f"example: {name}": rule(accept=text) for name, text in EXAMPLES.items()},
    }  # fmt: skip
    for name, text in texts.items():
        yield Case(f"rules: {name}", _file("bad.yaml", text, *check))
    # To prove a rule takes what it takes, and the prover has a limit of its own; to read one must not.
    long = rule(match=LINES_32, replace="      - y32 = Relu(y0)").replace("{x:", "{y0:").replace("rank(x)", "rank(y0)")
    yield Case("rules list: a pattern of 32 lines", _file("bad.yaml", long, "rules", "list", "--rules", "FILE"))
    for name, content in {
        "not UTF-8": b"family: \xff\xfe", "UTF-16": "family: f".encode("utf-16"), "random bytes": bytes(range(256)) * 40,
        "zero bytes": bytes(10_000),
    }.items():  # fmt: skip
        yield Case(f"rules: {name}", _file("bad.yaml", content, *check))
    for name in ("an alias bomb", "100,000 brackets", "recursive YAML", "escapes in an id"):
        yield Case(f"optimize --rules: {name}", _file("bad.yaml", texts[name], "optimize", "MODEL", "--rules", "FILE"))
        yield Case(f"rules list: {name}", _file("bad.yaml", texts[name], "rules", "list", "--rules", "FILE"))
    yield Case("rules show: escapes in a doc", _file("bad.yaml", texts["escapes in a doc"], "rules", "show", "bad-rule", "--rules", "FILE"))  # fmt: skip

    def lock(content: str) -> Build:
        def build(folder: Path) -> list[str]:
            (folder / "evidence.lock").write_text(content)
            (folder / "fine.yaml").write_text(rule())
            return ["rules", "list", "--rules", str(folder / "fine.yaml")]

        return build

    for name, content in {
        "deep": "[" * 100_000, "a list": "[]", "rules that are a list": '{"rules": []}', "entries that are numbers": '{"rules": {"bad-rule": 5}}',
    }.items():  # fmt: skip
        yield Case(f"evidence.lock: {name}", lock(content))


TRACE: dict[str, Any] = {
    "schema": "graphopt.trace/2", "model": "0" * 16, "rules": "0" * 16, "block": 16, "max_bytes": 10_000_000,
    "options": {
        "dims": {}, "input_shapes": {}, "freeze_initializers": False, "upgrade": False, "rules": [], "exclude": [], "portable": False,
        "max_error": None, "provider": "cpu", "provider_options": {}, "custom_ops": [], "threads": 0, "rtol": None, "atol": None,
    },
    "steps": [], "result": "0" * 16, "metadata": {}, "about": {},
}  # fmt: skip
STEP = {"rule": "r", "family": "f", "site": "0", "node": "n", "cost_before": 1.0, "cost_after": 0.5}


def traces() -> Iterator[Case]:
    """Files for ``replay``, ``bisect`` and ``explain --trace``."""
    changed: dict[str, dict[str, Any]] = {
        "options that are a number": {"options": 5}, "options that are a list": {"options": []}, "no options": {"options": {}},
        "max_bytes that is text": {"max_bytes": "x"}, "max_bytes that is a list": {"max_bytes": [1]},
        "metadata of numbers": {"metadata": {"a": 5}}, "metadata that is text": {"metadata": "x"},
        "block that is text": {"block": "x"}, "block that is true": {"block": True}, "steps that are a number": {"steps": 5},
        "steps of numbers": {"steps": [1, 2]}, "a step with less": {"steps": [{"rule": "r"}]}, "a step with more": {"steps": [{**STEP, "x": 1}]},
        "a step of numbers": {"steps": [{**STEP, "rule": 5}]}, "a cost of text": {"steps": [{**STEP, "cost_before": "x"}]},
        "model that is null": {"model": None}, "more fields": {"surprise": 1}, "about that is a list": {"about": []},
        "rules that are text": {"options": {**TRACE["options"], "rules": "abc"}}, "rules of numbers": {"options": {**TRACE["options"], "rules": [5]}},
        "rules that do not exist": {"options": {**TRACE["options"], "rules": ["nowhere.yaml"]}},
        "dims that are a list": {"options": {**TRACE["options"], "dims": [1]}}, "dims of text": {"options": {**TRACE["options"], "dims": {"a": "b"}}},
        "shapes of text": {"options": {**TRACE["options"], "input_shapes": {"x": "1x2"}}}, "shapes of numbers": {"options": {**TRACE["options"], "input_shapes": {"x": 3}}},
        "a provider that is a number": {"options": {**TRACE["options"], "provider": 5}},
        "provider options of lists": {"options": {**TRACE["options"], "provider_options": {"a": []}}},
        "another option": {"options": {**TRACE["options"], "surprise": 1}}, "sound, of another model": {},
        "a block of 0": {"block": 0}, "negative max_bytes": {"max_bytes": -1},
    }  # fmt: skip
    for number, (name, fields) in enumerate(changed.items()):
        text = json.dumps({**TRACE, **fields})
        command = [("replay", "FILE", "MODEL"), ("bisect", "FILE", "MODEL"), ("explain", "MODEL", "--trace", "FILE")]
        yield Case(f"trace: {name}", _file("t.json", text, *command[number % 3]))
    for name, content in {
        "deep": "[" * 100_000, "deep objects": '{"a":' * 100_000, "deep in options": json.dumps(TRACE).replace('"about": {}', '"about": ' + "[" * 50_000 + "]" * 50_000),
        "not JSON": "{", "nothing": "", "a number of 10,000 digits": "9" * 10_000, "a list": "[]", "NaN": '{"schema": NaN}', "text": '"graphopt.trace/2"',
    }.items():  # fmt: skip
        yield Case(f"trace: {name}", _file("t.json", content, "replay", "FILE", "MODEL"))
    yield Case("trace: not UTF-8", _file("t.json", b'{"schema": "\xff"}', "replay", "FILE", "MODEL"))

    def bombed(folder: Path) -> list[str]:
        (folder / "bomb.yaml").write_text(bomb(9))
        options = {**TRACE["options"], "rules": [str(folder / "bomb.yaml")]}
        (folder / "t.json").write_text(json.dumps({**TRACE, "options": options}))
        return ["replay", str(folder / "t.json"), model_in(folder)]

    yield Case("trace: an alias bomb in its rules", bombed)


def manifests() -> Iterator[Case]:
    """Manifests of agents."""
    base: dict[str, Any] = {
        "schema": "graphopt.agent/1", "algorithm": "ppo", "task": {"name": "t"}, "rules": {}, "seed": 0, "settings": {},
        "environment": {},
    }  # fmt: skip
    from graphopt.rl.task import load_task, shipped

    base["task"] = load_task(sorted(shipped())[0]).json()

    def agent(content: str | bytes) -> Build:
        def build(folder: Path) -> list[str]:
            (folder / "agent").mkdir()
            (folder / "agent/manifest.json").write_bytes(content.encode() if isinstance(content, str) else content)
            return ["optimize", model_in(folder), "--strategy", "rl", "--agent", str(folder / "agent")]

        return build

    changed: dict[str, dict[str, Any]] = {
        "an unknown algorithm": {"algorithm": "magic"}, "an algorithm that is a list": {"algorithm": []}, "a task that is a number": {"task": 5},
        "a task of escapes": {"task": {"\x1b[2J": 1}}, "rules that are a list": {"rules": []}, "rules of numbers": {"rules": {"a": 5}},
        "a seed of text": {"seed": "x"}, "settings that are text": {"settings": "x"}, "more fields": {"surprise": 1},
        "weights elsewhere": {"weights": "../../../etc/passwd"}, "no networks": {}, "best of text": {"best": {"a": "b"}},
        "another schema": {"schema": "graphopt.agent/99"}, "a schema that is a list": {"schema": []},
    }  # fmt: skip
    for name, fields in changed.items():
        yield Case(f"manifest: {name}", agent(json.dumps({**base, **fields})))
    without = {key: value for key, value in base.items() if key != "task"}
    for name, content in {
        "deep": "[" * 100_000, "deep in the task": json.dumps(base)[:-1] + ', "results": {"a": ' + "[" * 900 + "]" * 900 + "}}",
        "a task that is deep": json.dumps(without)[:-1] + ', "task": ' + "[" * 500 + "]" * 500 + "}",
        "no task": json.dumps(without), "a list": "[]", "nothing": "", "not JSON": "{,}",
    }.items():  # fmt: skip
        yield Case(f"manifest: {name}", agent(content))
    yield Case("manifest: not UTF-8", agent(b'{"schema": "\xff\xfe"}'))
    yield Case("manifest: evaluate-agent", lambda folder: ["evaluate-agent", agent("[" * 9999)(folder)[-1]])


def others() -> Iterator[Case]:
    """Tasks, tables of kernel times, settings and variables."""
    train = ("train-agent", "--task", "FILE", "--preset", "debug", "--out", "agent")
    for name, text in {
        "an alias bomb": bomb(9), "100,000 brackets": "[" * 100_000, "recursive": "&a\nname: *a\n", "a list": "[1, 2]", "nothing": "",
        "a number": "5", "escapes": '"\\e[2J": 1\n', "not a task": "family: f\n",
    }.items():  # fmt: skip
        yield Case(f"task: {name}", _file("t.yaml", text, *train))
    for name, text in {
        "deep": "[" * 100_000, "a list": "[]", "no times": "{}", "times that are lists": '{"schema": "graphopt.kernels/1", "environments": []}',
        "times of text": '{"schema": "graphopt.kernels/1", "environments": {"e": {"s": "x"}}}', "an infinite time": '{"schema": "graphopt.kernels/1", "environments": {"e": {"s": Infinity}}}',
    }.items():  # fmt: skip
        yield Case(f"kernel times: {name}", _file("k.json", text, "cost", "import", "FILE"))
    for name, text in {
        "not TOML": "[tool.graphopt", "a number": "tool = 5\n# graphopt", "a table of text": 'tool.graphopt = "x"', "an unknown setting": "[tool.graphopt]\nsurprise = 1",
        "threads of text": '[tool.graphopt]\nthreads = "many"', "a seed of 10 ** 400": "[tool.graphopt]\nseed = " + "9" * 400, "a deep list": "[tool.graphopt]\nrules = " + "[" * 20_000,
        "a budget of nan": "[tool.graphopt]\nbudget = nan", "escapes in a key": '[tool.graphopt]\n"\\u001b[2J" = 1', "a deep table": "[tool.graphopt." + ".".join(["a"] * 20_000) + "]\n",
    }.items():  # fmt: skip
        yield Case(f"pyproject.toml: {name}", _file("pyproject.toml", text, "optimize", "MODEL"))
    yield Case(
        "pyproject.toml: not UTF-8", _file("pyproject.toml", b"[tool.graphopt]\nx = '\xff'", "optimize", "MODEL")
    )
