"""Lines of the rule language: every form is parsed, every mistake is found where it is."""

from __future__ import annotations

import pytest

from graphopt.errors import RuleError
from graphopt.ir import ops
from graphopt.rewrite.pattern import Line, Operand, parse_line

AT = "rules/a.yaml:4:9"


def parse(text: str) -> Line:
    return parse_line(text, AT)


def test_a_plain_line() -> None:
    line = parse("y = MatMul(x, w1)")
    assert line.outputs == ("y",)
    assert line.ops == (("", "MatMul"),)
    assert line.operands == (Operand("x"), Operand("w1"))
    assert (line.attributes, line.captures, line.rest, line.alias, line.each, line.variadic) == (
        (),
        (),
        "",
        "",
        False,
        None,
    )
    assert (line.text, line.where) == ("y = MatMul(x, w1)", AT)


def test_everything_at_once() -> None:
    line = parse(
        "a , _,c=com.microsoft.Conv|Gelu|ai.onnx.ml.Scaler:f < axis=-1 , k = $v, s = (1, len((2, 3))) , *rest > ( x?, xs..., 0.5,none )"
    )
    assert line.outputs == ("a", "_", "c")
    assert line.ops == (("com.microsoft", "Conv"), ("", "Gelu"), ("ai.onnx.ml", "Scaler"))
    assert line.op_variable == "f"
    assert [(name, e.text) for name, e in line.attributes] == [("axis", "-1"), ("s", "(1, len((2, 3)))")]
    assert line.captures == (("k", "v"),)
    assert line.rest == "rest"
    assert line.operands == (
        Operand("x", "optional"),
        Operand("xs", "variadic"),
        Operand("", "number", 0.5),
        Operand("", "none"),
    )
    assert line.variadic == Operand("xs", "variadic")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0.0), ("-1", -1.0), ("2.", 2.0), ("0.044715", 0.044715), ("1e-5", 1e-5), ("-2.5E+3", -2500.0)],
)
def test_numbers(text: str, number: float) -> None:
    assert parse(f"y = Add(x, {text})").operands[1] == Operand("", "number", number)


def test_other_forms() -> None:
    assert parse("y = x").alias == "x"
    assert parse("y = $f(x)").op_variable == "f"
    assert parse("y = $f(x)").ops == ()
    assert parse("each ys = Relu(xs...)").each
    assert parse("each ys = Relu(xs...)").outputs == ("ys",)
    assert parse("eachy = Relu(x)").outputs == ("eachy",)
    assert parse("y = RandomNormal()").operands == ()
    assert parse("y = Conv<>(x)").attributes == ()
    assert parse("y = Conv<*>(x)").rest == "_"
    assert parse("y = Pad<value = 1 if (2 > 1) else 0>(x)").attributes[0][1].text == "1 if (2 > 1) else 0"
    assert {op for _, op in parse("y = @unary:f(x)").ops} == ops.UNARY


@pytest.mark.parametrize("equation", ["ij,jk->ik", "(", "a]", "it\\'s", '"<>"', "$i"])
def test_a_string_may_hold_anything(equation: str) -> None:
    line = parse(f"y = Einsum<equation = '{equation}', k = $v>(a, b)")
    assert [(name, e.text) for name, e in line.attributes] == [("equation", f"'{equation}'")]
    assert line.captures == (("k", "v"),)
    assert line.operands == (Operand("a"), Operand("b"))


def test_items_of_a_list() -> None:
    line = parse("y = Conv<pads = [$a, 0, $b, 1 + 1], strides = [1, 2], k = $v>(x)")
    (name, items), *others = line.lists
    assert (name, others) == ("pads", [])
    assert [i if isinstance(i, str) else i.text for i in items] == ["a", "0", "b", "1 + 1"]
    assert [(name, e.text) for name, e in line.attributes] == [("strides", "[1, 2]")]
    assert line.variables == ("v", "a", "b")
    wrong = parse_line("y = Conv<pads = [$a, ranc(x)]>(x)".replace("ranc", "rank"), AT).lists[0][1][1]
    assert not isinstance(wrong, str)
    assert wrong.where == "rules/a.yaml:4:30"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 9, "expected 'outputs = Operator(operands)'"),
        ("Relu(x)", 9, "expected 'outputs = Operator(operands)'"),
        ("1y = Relu(x)", 9, "'1y' is not a name"),
        ("y, = Relu(x)", 9, "'' is not a name"),
        ("y z = Relu(x)", 9, "'y z' is not a name"),
        ("y = ", 12, "expected an operator name"),
        ("y = relu(x)", 13, "expected an operator name"),
        ("y, z = x", 16, "expected an operator name"),
        ("y = Relu|(x)", 18, "expected an operator name"),
        ("y = Relu|tanh(x)", 18, "expected an operator name"),
        ("y = Relu:(x)", 18, "expected a variable after ':'"),
        ("y = $(x)", 14, "expected a variable after '$'"),
        ("y = Relu x", 18, "expected '('"),
        ("y, z = Relu", 20, "expected '('"),
        ("y = Relu(", 18, "expected an operand"),
        ("y = Relu(x", 19, "expected ',' or ')'"),
        ("y = Relu(x y)", 20, "expected ',' or ')'"),
        ("y = Relu(,)", 18, "expected an operand"),
        ("y = Relu(x,)", 20, "expected an operand"),
        ("y = Relu(x) z", 21, "unexpected 'z'"),
        ("y = Relu(x))", 20, "unexpected ')'"),
        ("y = Relu(x)(z)", 20, "unexpected '(z)'"),
        ("y = Relu() z", 20, "unexpected 'z'"),
        ("y = Conv<axis = 1(x)", 18, "'<' without '>'"),
        ("y = Conv<axis>(x)", 18, "expected 'attribute = value', not 'axis'"),
        ("y = Conv<axis = >(x)", 18, "expected 'attribute = value'"),
        ("y = Conv<1a = 1>(x)", 18, "expected 'attribute = value'"),
        ("y = Conv<*1>(x)", 18, "'1' is not a name"),
        ("y = Conv<axis = $>(x)", 25, "expected a variable after '$'"),
        ("y = Conv<axis = $1>(x)", 25, "expected a variable after '$'"),
        ("y = Conv<a = 1, axis = ranc(x)>(x)", 32, "unknown function 'ranc'"),
        ("y = Conv<axis = 1 +>(x)", 0, "1 +"),
        ("y = Conv<axis = 1, axis = 2>(x)", 28, "attribute 'axis' is given twice"),
        ("y = Conv<pads = [$a, $1]>(x)", 30, "expected a variable after '$'"),
        ("y = Conv<pads = [$a, 1 +]>(x)", 0, "1 +"),
        ("y = Conv<axis = $a + 1>(x)", 25, "<pads = [$a, $b]> for its items"),
        ("y = Conv<axis = 1 + $a>(x)", 29, "<pads = [$a, $b]> for its items"),
        ("y = Conv<pads = ($a, $b)>(x)", 26, "<pads = [$a, $b]> for its items"),
        ("y = Einsum<equation = \"ij,jk->ik>(x)", 20, "'<' without '>'"),
    ],
)  # fmt: skip
def test_mistakes(text: str, column: int, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert str(caught.value).startswith("rules/a.yaml:4:")
    if column:
        assert str(caught.value).split(": ")[0] == f"rules/a.yaml:4:{column}"
