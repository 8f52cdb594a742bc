"""Rules as drawings."""

from __future__ import annotations

import re

import pytest

from graphopt.cli.drawing import draw, draw_rule
from graphopt.rewrite.library import load_library
from graphopt.rewrite.pattern import parse_line
from tests.onnxio.models import library, rule

SUM = ["m = MatMul(x, a)", "n = MatMul(x, b)", "y = Add(m, n)"]


def drawing(*lines: str, results: tuple[str, ...] = ("y",), ascii: bool = False) -> str:
    return "\n".join(draw([parse_line(line, "f:1:1") for line in lines], results, ascii=ascii))


def test_a_shared_operand_has_a_row():
    wanted = """\
╭───── x
├─┬───○ m = MatMul(x, a)
╰─│─┬─○ n = MatMul(x, b)
  ╰─┴─● y = Add(m, n)"""
    assert drawing(*SUM) == wanted


def test_a_chain_takes_two_columns():
    wanted = """\
╭───○ a = Neg(x)
╰─┬─○ b = Abs(a)
╭─┴─○ c = Relu(b)
╰───● y = Tanh(c)"""
    assert drawing("a = Neg(x)", "b = Abs(a)", "c = Relu(b)", "y = Tanh(c)") == wanted


def test_makers_come_before_readers():
    assert drawing(*reversed(SUM)) == drawing(SUM[1], SUM[0], SUM[2])


def test_a_value_read_twice_goes_on():
    wanted = """\
╭───○ s = Sigmoid(x)
├─┬─○ a = Neg(s)
╰─┴─● y = Mul(s, a)"""
    assert drawing("s = Sigmoid(x)", "a = Neg(s)", "y = Mul(s, a)") == wanted


def test_one_node_and_an_alias():
    assert drawing("y = Add(x, x)") == "● y = Add(x, x)"
    assert drawing("y = x") == "● y = x"
    assert drawing("n = Neg(x)", "y = n") == "╭─○ n = Neg(x)\n╰─● y = n"


def test_variadic_operands_and_nameless_outputs():
    wanted = """\
╭───○ a, _ = Split(x, n)
│ ╭─○ each bs = Relu(cs...)
╰─┴─● y = Concat<axis = 0>(a, bs...)"""
    assert drawing("a, _ = Split(x, n)", "each bs = Relu(cs...)", "y = Concat<axis = 0>(a, bs...)") == wanted


def test_ascii():
    assert drawing(*SUM, ascii=True) == drawing(*SUM).translate(str.maketrans("╭╰├┬┴┼│─○●", ",`++++|-o*"))
    assert drawing(*SUM, ascii=True).isascii()


def test_side_by_side_or_not():
    known = library(rule("sum", SUM, ["w = Add(a, b)", "y = MatMul(x, w)"])).by_id["sum"]
    wide, narrow = draw_rule(known, 100), draw_rule(known, 40)
    assert len(wide) == 4
    assert [line.count("=>") for line in wide] == [1, 0, 0, 0]
    assert max(map(len, wide)) <= 100
    assert narrow[4:7] == ["", "  =>", ""]
    assert "".join(narrow).count("MatMul") == "".join(wide).count("MatMul") == 3


@pytest.mark.parametrize("known", load_library(evidence=False).rules, ids=lambda known: known.id)
def test_the_rails_of_a_shipped_rule_lead_where_they_should(known):
    """Follow the rails: each row must be reached by exactly the rows whose values it reads."""
    for lines in (known.match, known.replace):
        drawn = draw(lines, known.roots)
        by_text = {" ".join(line.text.split()): line for line in lines}
        carried: dict[int, set[str]] = {}
        rows = 0
        for row in drawn:
            found = re.fullmatch(r"([╭╰├┬┴┼│─ ]*)([○●])? ?(.*)", row)
            assert found is not None
            rails, mark, text = found.groups()
            line = by_text[text] if mark else None
            rows += mark is not None
            reads = set() if line is None else {o.name for o in line.operands} | {line.alias}
            arriving = [c for c, sign in enumerate(rails) if sign in "╰├┴┼"]
            assert all(carried[c] & reads for c in arriving)
            brought = set().union(*(carried[c] for c in arriving))
            open_names = set().union(*carried.values())
            assert not (open_names & reads) - brought
            for c in (c for c, sign in enumerate(rails) if sign in "╰┴"):
                del carried[c]
            starting = [c for c, sign in enumerate(rails) if sign in "╭┬"]
            assert len(starting) <= 1 and not set(starting) & set(carried)
            for c in starting:
                carried[c] = {text} if line is None else set(line.outputs)
            assert {c for c, sign in enumerate(rails) if sign not in "─ "} == set(carried) | set(arriving)
            assert mark != "●" or line is None or set(line.outputs) & set(known.roots)
        assert not carried
        assert rows == len(lines)
