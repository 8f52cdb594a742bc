"""Rules for property tests: true for every operand, and together they use all that the engine offers."""

from __future__ import annotations

from graphopt.rewrite.library import Library
from tests.onnxio.models import library, rule

_MERGE = ["w = Concat<axis = -1>(w1, w2)", "y = MatMul(x, w)", "y1, y2 = Split<axis = -1>(y, widths)"]

PACK: Library = library(
    # Aliases, chains, and pairs that undo each other.
    rule("drop-identity", ["y = Identity(x)"], ["y = x"]),
    rule("relu-of-relu", ["r = Relu(x)", "y = Relu(r)"], ["y = Relu(x)"]),
    rule("neg-of-neg", ["n = Neg(x)", "y = Neg(n)"], ["y = x"]),
    rule("neg-twice", ["y = Abs(x)"], ["n = Neg(x)", "y = Abs(n)"]),
    rule("sub-to-add", ["y = Sub(a, b)"], ["n = Neg(b)", "y = Add(a, n)"]),
    rule("add-to-sub", ["n = Neg(b)", "y = Add(a, n)"], ["y = Sub(a, b)"]),
    rule("relu-to-max", ["y = Relu(x)"], ["y = Max(x, 0)"]),
    rule("max-to-relu", ["y = Max(x, 0)"], ["y = Relu(x)"], where=['dtype(x) == "f32"', "broadcasts_to((1,), shape(x))"]),
    rule("swap", ["y = Add(a, b)"], ["y = Add(b, a)"]),
    # A value twice, a literal, a result that is constant.
    rule("max-of-one", ["y = Max(x, x)"], ["y = x"]),
    rule("times-one", ["y = Mul(x, 1)"], ["y = x"], where=["rank(x) > 1"]),
    rule("nothing-left", ["y = Sub(x, x)"], ["y = z"], where=["is_static(x)"], let={"z": "full(x, shape(x), 0)"}),
    rule("nothing-left-slowly", ["y = Sub(x, x)"], ["y = Mul(x, 0)"]),
    rule("constant-first", ["s = Add(x, c)", "y = Add(s, d)"], ["e = Add(c, d)", "y = Add(x, e)"],
         where=["is_const(c, d) and not is_const(x)"]),
    rule("scale-the-weight", ["h = MatMul(x, w)", "y = Mul(h, c)"], ["v = Mul(w, c)", "y = MatMul(x, v)"],
         where=["is_const(w, c) and size(c) == 1 and rank(c) <= 1"]),
    # Who reads a value, and whether it is constant, changes under other rewrites.
    rule("relu-of-abs", ["a = Abs(x)", "y = Relu(a)"], ["y = Abs(x)"], where=["uses(a) == 1"]),
    rule("tanh-to-sigmoid", ["y = Tanh(x)"], ["d = Mul(x, 2)", "s = Sigmoid(d)", "t = Mul(s, 2)", "y = Sub(t, 1)"],
         where=["not is_output(y) and uses(y) == 1"]),
    rule("known-sum", ["y = Add(x, c)"], ["n = Neg(c)", "y = Sub(x, n)"], where=["is_const(c) and not is_const(x)"]),
    rule("known-concat", ["y = Concat<*a>(x, c)"], ["n = Neg(c)", "m = Neg(n)", "y = Concat<*a>(x, m)"],
         where=["is_const(c) and max_of(c) <= 1"]),
    # Several roots.
    rule("merge", ["y1 = MatMul(x, w1)", "y2 = MatMul(x, w2)"], _MERGE, roots="{unordered: [y1, y2]}",
         where=["rank(w1) == 2 and rank(w2) == 2"], let={"widths": "i64([dim(w1, -1), dim(w2, -1)])"}),
    rule("swap-roots", ["s = Add(a, b)", "d = Sub(a, b)"], ["d = Sub(a, b)", "n = Neg(b)", "s = Sub(a, n)"]),
    rule("relu-of-parts", ["a, b = Split<*split>(x, n)", "y = Relu(a)", "z = Relu(b)"],
         ["r = Relu(x)", "y, z = Split<*split>(r, n)"]),
    rule("first-part", ["a, b = Split<axis = $i>(x, n)"], ["b, a = Split<axis = i>(t, m)"],
         where=["False"], let={"t": "i64(0)", "m": "i64(0)"}),
    # Attributes, variadic operands, each, operator variables.
    rule("split-concat", ["a, b = Split<axis = $i>(x, n)", "y = Concat<axis = $i>(a, b)"], ["y = x"]),
    rule("transposes", ["t = Transpose<perm = $p>(x)", "y = Transpose<perm = $q>(t)"],
         ["y = Transpose<perm = permute(p, q)>(x)"], where=["p != None and q != None"]),
    rule("no-transpose", ["y = Transpose<perm = $p>(x)"], ["y = x"], where=["p == range(rank(x))"]),
    rule("unary-before-transpose", ["u = @unary:f(x)", "y = Transpose<*t>(u)"], ["s = Transpose<*t>(x)", "y = $f(s)"]),
    rule("unary-after-transpose", ["s = Transpose<*t>(x)", "y = Relu|Neg|Abs:f(s)"], ["u = $f(x)", "y = Transpose<*t>(u)"]),
    rule("unary-of-parts", ["c = Concat<*a>(xs...)", "y = Relu|Neg|Tanh:f(c)"],
         ["each ys = $f(xs...)", "y = Concat<*a>(ys...)"]),
    rule("nested-concat", ["c = Concat<axis = $i>(xs...)", "y = Concat<axis = $j>(a, c, zs...)"],
         ["y = Concat<axis = i>(a, xs..., zs...)"], where=["axis(i, rank(a)) == axis(j, rank(a))"]),
    rule("single-concat", ["y = Concat<*a>(x)"], ["y = x"]),
    rule("reshapes", ["h = Reshape(x, s)", "y = Reshape(h, t)"], ["y = Reshape(x, u)"],
         where=["is_static(y)"], let={"u": "i64(shape(y))"}),
    rule("mean-to-sum", ["y = ReduceMean<axes = $axes, *a>(x)"], ["s = ReduceSum<*a>(x, i)", "y = Div(s, n)"],
         where=["is_int(dim(x, axes[0]))"], let={"i": "i64(axes)", "n": "like(x, dim(x, axes[0]))"}),
    rule("bias-into-conv", ["c = Conv<*a>(x, w)", "y = Add(c, b)"], ["v = Reshape(b, flat)", "y = Conv<*a>(x, w, v)"],
         where=["is_const(b) and shape(b) == (1, dim(w, 0), 1, 1)"], let={"flat": "i64([-1])"}),
    rule("bias-out-of-conv", ["y = Conv<*a>(x, w, b)"], ["c = Conv<*a>(x, w)", "v = Reshape(b, tall)", "y = Add(c, v)"],
         let={"tall": "i64([1, -1, 1, 1])"}),
    rule("split-matmul", ["y = MatMul(x, w)"],
         ["l, r = Split<axis = 1>(w, n)", "a = MatMul(x, l)", "b = MatMul(x, r)", "y = Concat<axis = -1>(a, b)"],
         where=["is_const(w) and rank(w) == 2 and dim(w, 1) > 1"], let={"n": "i64([1, dim(w, 1) - 1])"}),
)  # fmt: skip
