"""Two whole models on the same inputs."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import InputsNeededError, SessionError, UnknownNameError, UsageError
from graphopt.runtime.guard import Guarded
from graphopt.runtime.session import LoadableModel, SessionConfig
from graphopt.runtime.sizes import Hints
from graphopt.verification import numeric, reference
from graphopt.verification.numeric import Verifier, verify_models
from tests.runtime.models import LONG, F, chain, model, of_map, placeholder, proto

X, Y = [("x", F, ["batch", 8])], [("y", F, ["batch", 8])]


def unary(op, *more, **kwargs):
    return model([helper.make_node(op, ["x", *more], ["y"], **kwargs)], X, Y)


def affine(order=("x", "w"), bias=0.01, op="Sub"):
    """y = (x - w) @ v + b"""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal(8), "v": rng.standard_normal((8, 8)), "b": np.full(8, bias)}
    nodes = [helper.make_node(op, list(order), ["d"]), helper.make_node("MatMul", ["d", "v"], ["p"]),
             helper.make_node("Add", ["p", "b"], ["y"])]  # fmt: skip
    return model(nodes, X, Y, {k: a.astype(np.float32) for k, a in weights.items()})


def test_a_model_equals_itself():
    found = verify_models(affine(), affine())
    assert found.passed and found.trials == 3 and found.message == ""
    (output,) = found.outputs
    assert output.name == found.worst_output == "y" and output.passed and output.reference == "disabled"


def test_the_original_is_run_once_for_many_models(monkeypatch):
    opened, how = list[tuple[bytes, str]](), numeric.open_guarded

    def counted(asked, config, **limits):
        opened.append((asked, config.level))
        return how(asked, config, **limits)

    monkeypatch.setattr(numeric, "open_guarded", counted)
    monkeypatch.setattr(reference, "open_guarded", counted)
    original, wrong = affine(), affine(op="Add")
    verifier = Verifier(original)
    outcomes = [verifier.verify(each).passed for each in (original, wrong, wrong, affine(order=("w", "x")))]
    assert outcomes == [True, False, False, False]
    # As it is, and, since something failed, as it is run; besides the one time that it was itself compared.
    assert [level for asked, level in opened if asked == original] == ["disabled", "all", "all"]


def test_only_the_trials_that_failed_are_made_again():
    verifier = Verifier(
        unary("Identity"), overrides=[{"x": np.full((2, 8), value, np.float32)} for value in (1, 2, -3)]
    )
    wrong = unary("Abs")
    found = verifier.verify(wrong)
    assert found.failed == (2,) and found.trials == 3
    again = verifier.verify(wrong, trials=found.failed)
    assert again.failed == (2,) and again.trials == 1 and again.message == found.message
    assert verifier.verify(wrong, trials=(0, 1)).passed


def test_another_order_of_summation_passes():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 4096)).astype(np.float32)
    back = rng.standard_normal((4096, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    shuffled = rng.permutation(4096)
    found = verify_models(
        model(nodes, X, Y, {"w": weight, "v": back}),
        model(nodes, X, Y, {"w": weight[:, shuffled], "v": back[shuffled]}),
    )
    assert found.passed and 0 < found.max_rel < 1e-5


@pytest.mark.parametrize(
    "wrong",
    [affine(order=("w", "x")), affine(bias=0.0), affine(op="Add"), affine(bias=0.02)],
    ids=["swapped", "dropped bias", "other operator", "other bias"],
)
def test_mistakes_are_caught(wrong):
    found = verify_models(affine(), wrong)
    assert not found.passed and found.worst_output == "y"
    assert "output 'y': off by" in found.message


def test_a_mistake_that_only_large_inputs_show():
    bound = {"lo": np.float32(-6), "hi": np.float32(6)}
    clipped = model(
        [helper.make_node("Clip", ["x", "lo", "hi"], ["y"])], X, Y, {k: np.array(v) for k, v in bound.items()}
    )
    assert not verify_models(clipped, unary("Identity"), dims={"batch": 64}).passed


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.UINT16])
def test_a_whole_number_is_told_from_its_square_and_its_sign(kind):
    def of(*nodes):
        ends = ["x", ["n", 8]], ["y", ["n", 8]]
        (x, shape), (y, made) = ends
        cast = helper.make_node("Cast", ["x"], ["f"], to=F)
        return model([cast, *nodes], [(x, kind, shape)], [(y, F, made)])

    same = of(helper.make_node("Identity", ["f"], ["y"]))
    assert verify_models(same, same).passed
    assert not verify_models(same, of(helper.make_node("Mul", ["f", "f"], ["y"]))).passed
    assert not verify_models(same, of(helper.make_node("Sign", ["f"], ["y"]))).passed


def test_larger_floats_are_tried_where_larger_whole_numbers_do_not_run():
    """A table of two rows, which nothing says before it runs."""

    def clipped(high):
        nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["t", "o", "u"], ["r"]),
                 helper.make_node("Gather", ["r", "i"], ["g"]), helper.make_node("Clip", ["x", "l", "h"], ["c"]),
                 helper.make_node("Add", ["c", "g"], ["y"])]  # fmt: skip
        weights = {"t": np.zeros(8, np.float32), "o": np.array([0]), "l": np.float32(-high), "h": np.float32(high)}
        ends = [("x", F, [40]), ("i", LONG, [40]), ("u", LONG, [1])]
        return model(nodes, ends, [("y", F, [40])], weights)

    found = verify_models(clipped(4.5), clipped(100), overrides={"u": np.array([2])})
    assert not found.passed and found.failed == (2,)


def test_chosen_tolerance():
    near = affine(bias=0.011)
    assert not verify_models(affine(), near, rtol=1e-6).passed
    assert verify_models(affine(), near, rtol=1e-2).passed
    assert verify_models(affine(), near, rtol=0.0, atol=2e-3).passed


def test_a_sensitive_model_gets_a_wider_tolerance_and_no_wider():
    """A chain that amplifies what it is given: (x * 1000) mod 1, which turns rounding into errors of 1e-4 and more."""

    def fraction(gain, epsilon):
        nodes = [helper.make_node("Mul", ["x", "g"], ["m"]), helper.make_node("Add", ["m", "e"], ["n"]),
                 helper.make_node("Sin", ["n"], ["y"])]  # fmt: skip
        return model(nodes, X, Y, {"g": np.array(gain, np.float32), "e": np.array(epsilon, np.float32)})

    calm = verify_models(fraction(1, 0), fraction(1, 1e-3), trials=1)
    assert not calm.passed and calm.outputs[0].tolerance == pytest.approx(1e-4)
    wild = verify_models(fraction(1000, 0), fraction(1000, 1e-3), trials=1)
    assert wild.passed and 1e-3 < wild.outputs[0].tolerance <= 0.05
    assert not verify_models(fraction(1000, 0), fraction(1000, 0.5), trials=1).passed


def test_larger_inputs_that_a_model_makes_chaos_of_say_nothing():
    """sin(exp(3x)) is calm where it was trained; driven far from there, rounding is all that it shows."""

    def spelled(*nodes, constant=3.0):
        return model([*nodes, helper.make_node("Sin", ["e"], ["y"])], X, Y, {"c": np.array(constant, np.float32)})

    by_product = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Exp", ["m"], ["e"])]
    by_power = [helper.make_node("Exp", ["x"], ["m"]), helper.make_node("Pow", ["m", "c"], ["e"])]
    found = verify_models(spelled(*by_product), spelled(*by_power))
    assert found.passed and found.trials == 2, found
    assert not verify_models(spelled(*by_product), spelled(*by_power, constant=3.1)).passed
    assert verify_models(unary("Sin"), unary("Sin")).trials == 3


def test_half_precision_inside_widens_the_tolerance():
    def through(code, bias):
        nodes = [helper.make_node("Cast", ["x"], ["h"], to=code), helper.make_node("Cast", ["h"], ["g"], to=F),
                 helper.make_node("Add", ["g", "b"], ["y"])]  # fmt: skip
        return model(nodes, X, Y, {"b": np.array(bias, np.float32)})

    assert verify_models(through(TensorProto.FLOAT16, 0), through(TensorProto.FLOAT16, 2e-3)).passed
    assert not verify_models(through(TensorProto.DOUBLE, 0), through(TensorProto.DOUBLE, 2e-3)).passed
    assert not verify_models(through(TensorProto.FLOAT16, 0), through(TensorProto.FLOAT16, 0.2)).passed


@pytest.mark.parametrize("code", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_precision_throughout(code):
    signature = [("x", code, [4, 8])], [("y", code, [4, 8])]
    one, two = (model([helper.make_node(op, ["x"], ["y"])], *signature) for op in ("Identity", "Neg"))
    if code == TensorProto.BFLOAT16:  # the CPU provider negates no bfloat16
        two = model([helper.make_node("Cast", ["x"], ["h"], to=F), helper.make_node("Neg", ["h"], ["g"]),
                     helper.make_node("Cast", ["g"], ["y"], to=code)], *signature)  # fmt: skip
    assert verify_models(one, one).passed
    assert not verify_models(one, two).passed


def test_not_a_number_passes_only_in_its_place():
    assert verify_models(unary("Log"), unary("Log")).passed
    absolute = [helper.make_node("Abs", ["x"], ["h"]), helper.make_node("Log", ["h"], ["y"])]
    found = verify_models(unary("Log"), model(absolute, X, Y))
    assert not found.passed and "finite in one and not in the other" in found.message
    assert math.isinf(found.max_abs)


def test_exact_outputs():
    def largest(op):
        nodes = [helper.make_node(op, ["x"], ["y"], axis=1), helper.make_node("Shape", ["x"], ["s"])]
        return model(nodes, [("x", F, [50, 8])], [("y", LONG, None), ("s", LONG, [2])])

    assert verify_models(largest("ArgMax"), largest("ArgMax")).passed
    found = verify_models(largest("ArgMax"), largest("ArgMin"))
    assert not found.passed and found.worst_output == "y" and "elements differ" in found.message
    assert [o.passed for o in found.outputs] == [False, True]


def test_exact_outputs_at_a_tie_may_flip():
    """The sign of x - x * 1.0000001 is rounding noise: the original's own outputs flip when its inputs move."""

    def sign(times):
        nodes = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Sin", ["m"], ["s"]),
                 helper.make_node("Greater", ["s", "z"], ["y"])]  # fmt: skip
        weights = {"c": np.array(times, np.float32), "z": np.array(0, np.float32)}
        return model(nodes, [("x", F, [4000])], [("y", TensorProto.BOOL, [4000])], weights)

    close = np.nextafter(np.float32(3e4), np.float32(4e4))
    found = verify_models(sign(3e4), sign(close))
    assert found.passed
    assert not verify_models(sign(3e4), sign(2.9e4)).passed


def test_whole_numbers_that_all_flip_are_no_others():
    """Each is off by one where the inputs move; a tolerance of everything would be none."""

    def scaled(times):
        nodes = [helper.make_node("Mul", ["x", "c"], ["m"]), helper.make_node("Cast", ["m"], ["y"], to=LONG)]
        return model(nodes, [("x", F, [40])], [("y", LONG, [40])], {"c": np.array(times, np.float32)})

    assert verify_models(scaled(1e7), scaled(np.nextafter(np.float32(1e7), np.float32(2e7)))).passed
    assert not verify_models(scaled(1e7), scaled(-1e7)).passed
    assert not verify_models(scaled(1e7), scaled(1.001e7)).passed


def test_quantised_outputs_may_be_a_level_off_only_if_asked_for():
    def quantised(shift):
        nodes = [helper.make_node("Add", ["x", "b"], ["h"]), helper.make_node("QuantizeLinear", ["h", "s", "z"], ["y"])]
        weights = {"b": np.array(shift, np.float32), "s": np.array(0.05, np.float32), "z": np.array(128, np.uint8)}
        return model(nodes, X, [("y", TensorProto.UINT8, ["batch", 8])], weights)

    assert not verify_models(quantised(0), quantised(0.04)).passed
    assert verify_models(quantised(0), quantised(0.04), levels=1).passed
    assert not verify_models(quantised(0), quantised(0.2), levels=1).passed


def test_text_sequences_and_optionals():
    tensor = helper.make_tensor_type_proto(F, ["batch", 8])
    sequence = helper.make_value_info("y", helper.make_sequence_type_proto(tensor))
    pair = model([helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], X, [sequence])
    single = model([helper.make_node("SequenceConstruct", ["x"], ["y"])], X, [sequence])
    assert verify_models(pair, pair).passed
    found = verify_models(pair, single)
    assert not found.passed and "2 elements became 1" in found.message
    text = [("s", TensorProto.STRING, [3])], [("t", TensorProto.STRING, None)]
    words = model([helper.make_node("Identity", ["s"], ["t"])], *text)
    doubled = model([helper.make_node("Concat", ["s", "s"], ["t"], axis=0)], *text)
    assert verify_models(words, words).passed
    assert "shape [3] became [6]" in verify_models(words, doubled).message


def test_a_change_of_type_or_shape():
    wide = model([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.DOUBLE)], X, [("y", TensorProto.DOUBLE, None)])
    assert "type float32 became float64" in verify_models(unary("Identity"), wide).message
    flat = model([helper.make_node("Flatten", ["x"], ["y"], axis=0)], X, [("y", F, None)])
    assert "shape [1, 8] became [1, 8]" not in verify_models(unary("Identity"), flat, dims={"batch": 2}).message
    assert "shape [2, 8] became [1, 16]" in verify_models(unary("Identity"), flat, dims={"batch": 2}).message


def test_a_change_of_outputs_or_inputs():
    nodes = [helper.make_node("Sin", ["x"], ["y"]), helper.make_node("Cos", ["x"], ["z"])]
    z = ("z", F, ["batch", 8])
    both, swapped, one = model(nodes, X, [Y[0], z]), model(nodes, X, [z, Y[0]]), model(nodes[:1], X, Y)
    assert "outputs y, z became z, y" in verify_models(both, swapped).message
    assert "outputs y, z became y" in verify_models(both, one).message
    more = model([helper.make_node("Add", ["x", "extra"], ["y"])], [*X, ("extra", F, ["batch", 8])], Y)
    found = verify_models(unary("Identity"), more)
    assert not found.passed and "inputs the original lacks: extra" in found.message


def test_an_input_that_is_gone_is_fine():
    unused = model([helper.make_node("Sin", ["x"], ["y"])], [*X, ("unused", F, [3])], Y)
    assert verify_models(unused, unary("Sin")).passed


def test_an_optimised_model_that_fails_is_an_outcome():
    found = verify_models(unary("Sin"), LoadableModel(b"junk"))
    assert not found.passed and "fails where the original does not" in found.message
    fixed = model([helper.make_node("Sin", ["x"], ["y"])], [("x", F, [7, 8])], [("y", F, [7, 8])])
    assert not verify_models(unary("Sin"), fixed).passed
    assert verify_models(unary("Sin"), fixed, dims={"batch": 7}).passed


def test_an_original_that_does_not_open_is_an_error():
    with pytest.raises(SessionError, match="can't open"):
        verify_models(LoadableModel(b"junk"), unary("Sin"))


def test_random_outputs_are_compared_by_shape():
    def noisy(shape, op="RandomNormal"):
        nodes = [helper.make_node(op, [], ["r"], shape=shape), helper.make_node("Sin", ["x"], ["y"])]
        return model(nodes, X, [("r", F, None), *Y])

    found = verify_models(noisy([3]), noisy([3], "RandomUniform"))
    assert found.passed and "non-deterministic" in found.message and "r" in found.message
    assert [o.random for o in found.outputs] == [True, False]
    assert not verify_models(noisy([3]), noisy([4])).passed


def test_a_vacuous_comparison_is_told():
    zero = {"z": np.zeros(1, np.float32)}
    nothing = model([helper.make_node("Mul", ["x", "z"], ["y"])], X, Y, zero)
    found = verify_models(nothing, nothing)
    assert found.passed and "all zero or nowhere finite in every trial" in found.message
    root = [helper.make_node(op, [a], [b]) for op, a, b in (("Abs", "x", "a"), ("Neg", "a", "n"), ("Sqrt", "n", "y"))]
    found = verify_models(model(root, X, Y), model(root, X, Y))
    assert found.passed and "nowhere finite in every trial, which proves little: y" in found.message
    void = helper.make_graph([helper.make_node("SequenceEmpty", [], ["y"])], "g", [helper.make_tensor_value_info("x", F, [1])],
                             [helper.make_tensor_sequence_value_info("y", F, None)])  # fmt: skip
    void = helper.make_model(void, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = verify_models(*[LoadableModel(void.SerializeToString())] * 2)
    assert found.passed and "which proves little: y" in found.message


def test_a_gather_out_of_range_names_the_input():
    nodes = [helper.make_node("Add", ["ids", "five"], ["moved"]), helper.make_node("Gather", ["t", "moved"], ["y"])]
    table = model(nodes, [("ids", LONG, [4]), ("x", F, [1])], [("y", F, None)],
                  {"t": np.random.default_rng(0).standard_normal((1, 3)).astype(np.float32), "five": np.array(5)})  # fmt: skip
    with pytest.raises(InputsNeededError, match="made-up input 'ids'") as error:
        verify_models(table, table)
    assert "--inputs" in error.value.hint
    assert verify_models(table, table, ranges={"ids": (-5, -4)}).passed
    with pytest.raises(InputsNeededError):
        verify_models(table, table, overrides={"ids": np.full(4, 5)})


def test_inputs_that_cannot_be_made_up():
    graph = of_map()
    with pytest.raises(InputsNeededError, match="'m'"):
        verify_models(graph, graph)
    found = verify_models(graph, graph, overrides={"m": {1: 2.0}})
    assert found.passed and found.trials == 1


def test_failing_on_all_given_inputs_says_so():
    bend = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", F, [4]), ("s", LONG, [1])], [("y", F, None)])
    given = {"x": np.ones(4, np.float32), "s": np.array([3])}
    with pytest.raises(InputsNeededError, match="inputs given"):
        verify_models(bend, bend, overrides=given)
    assert verify_models(bend, bend, overrides={**given, "s": np.array([-1])}).trials == 1


def test_wrong_inputs_are_usage_errors():
    with pytest.raises(UnknownNameError):
        verify_models(affine(), affine(), overrides={"z": np.zeros(3)})
    with pytest.raises(UsageError):
        verify_models(affine(), affine(), overrides={"x": np.zeros((1, 8))})
    with pytest.raises(UnknownNameError):
        verify_models(affine(), affine(), dims={"bach": 2})
    with pytest.raises(UsageError, match="at least one trial"):
        verify_models(affine(), affine(), trials=0)


def test_the_runtimes_own_difference_is_not_held_against_us():
    """Told to clean up, the runtime drops a QuantizeLinear and DequantizeLinear that round to whole numbers."""
    steps = (("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "y"))
    nodes = [helper.make_node(op, [source, "s", "z"], [target]) for op, source, target in steps]
    rounding = model(nodes, X, Y, {"s": np.array(1, np.float32), "z": np.array(128, np.uint8)})
    assert not verify_models(rounding, unary("Identity")).passed
    cleaning = SessionConfig(entries={"session.enable_quant_qdq_cleanup": "1"})
    found = verify_models(rounding, unary("Identity"), config=cleaning)
    assert found.passed and found.outputs[0].reference == "all"
    assert not verify_models(rounding, unary("Neg"), config=cleaning).passed


def test_unoptimised_is_its_own_reference():
    found = verify_models(affine(), affine(), config=SessionConfig(level="disabled"))
    assert found.passed and found.outputs[0].reference == "disabled"


def test_one_session_at_a_time(monkeypatch):
    alive, most = set(), []
    plain_open, plain_close = Guarded.__init__, Guarded.close

    def opened(self, *args):
        plain_open(self, *args)
        alive.add(id(self))
        most.append(len(alive))

    def closed(self):
        alive.discard(id(self))
        plain_close(self)

    monkeypatch.setattr(Guarded, "__init__", opened)
    monkeypatch.setattr(Guarded, "close", closed)
    verify_models(affine(), affine(bias=1))
    assert most == [1, 1, 1]


def test_files_and_weights_in_memory(tmp_path):
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(proto(nodes, X, Y, {"w": numpy_helper.from_array(weight, "w")}), tmp_path / "a.onnx")
    in_memory = model(nodes, X, Y, {"w": placeholder("w", F, [8, 8])}, tensors={"w": weight})
    assert verify_models(tmp_path / "a.onnx", in_memory).passed
    wrong = model(nodes, X, Y, {"w": placeholder("w", F, [8, 8])}, tensors={"w": weight.T})
    assert not verify_models(tmp_path / "a.onnx", wrong).passed


def test_threads():
    assert verify_models(chain(3), chain(3), config=SessionConfig(threads=2)).passed


@pytest.mark.skipif(
    "AzureExecutionProvider" not in onnxruntime.get_available_providers(), reason="this build has no idle provider"
)
def test_another_provider_is_held_against_the_cpu():
    config = SessionConfig("AzureExecutionProvider", required=False)
    found = verify_models(affine(), affine(), config=config)
    assert found.passed and found.outputs[0].reference == "disabled"
    assert not verify_models(affine(), affine(bias=0.02), config=config).passed


SLICED = [helper.make_node("Slice", ["x", "s", "e", "a"], ["y"])]
BOUNDS = {"s": np.array([0]), "e": np.array([10]), "a": np.array([1])}


def test_what_is_right_at_one_size_alone():
    ends = [("x", F, ["batch", "seq"])], [("y", F, ["batch", None])]
    cut = model(SLICED, *ends, {**BOUNDS, "e": np.array([6])})
    assert not verify_models(cut, model([helper.make_node("Identity", ["x"], ["y"])], *ends)).passed
    # At five and at one nothing is cut: only the larger sizes say so.
    cut = model(SLICED, *ends, {**BOUNDS, "e": np.array([8])})
    found = verify_models(cut, cut)
    large, small = [(1, 128), (4, 67)], [(1, 5), (1, 1)]
    assert found.passed and found.sizes == tuple({"batch": n, "seq": m} for n, m in large + small)
    assert found.trials == 5


def test_a_mistake_at_size_one():
    """A mean over an axis of size one is nothing but a copy: a rewrite that broadcasts wrongly shows there alone."""
    add = model([helper.make_node("Add", ["x", "x"], ["y"])], [("x", F, ["n", 4])], [("y", F, ["n", 4])])
    nodes = [helper.make_node("Concat", ["x", "x"], ["c"], axis=0), helper.make_node("Slice", ["c", "s", "e"], ["p"]),
             helper.make_node("Add", ["p", "x"], ["y"])]  # fmt: skip
    firsts = model(nodes, [("x", F, ["n", 4])], [("y", F, ["n", 4])], {"s": np.array([0]), "e": np.array([8])})
    found = verify_models(add, firsts)
    assert not found.passed


def test_sizes_that_run_are_looked_for():
    add = [helper.make_node("Add", ["x", "b"], ["y"])]
    twelve = model(add, [("x", F, ["batch", "seq"])], [("y", F, ["batch", 12])], {"b": np.ones(12, np.float32)})
    found = verify_models(twelve, twelve)
    assert (found.passed and {s["seq"] for s in found.sizes} == {1, 12}) or {s["seq"] for s in found.sizes} == {1}
    found = verify_models(twelve, twelve, hints=Hints({"seq": [12]}))
    assert found.passed and {s["seq"] for s in found.sizes} == {12, 1}


def test_no_size_runs():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    never = model(nodes, [("x", F, ["seq", "n"])], [("y", F, None)], {"w": np.ones((1009, 2), np.float32)})
    with pytest.raises(InputsNeededError, match="made-up") as error:
        verify_models(never, never)
    assert "--dim seq=N --dim n=N" in str(error.value.hint) and "--inputs" in str(error.value.hint)
    assert verify_models(never, never, hints=Hints({"n": [1009]})).passed


def enlarged(height="h", factor=2.0, single=False):
    """An image of channels last that is resized, for which the runtime's own optimiser takes a kernel that lacks most factors."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Shape", ["t"], ["s"], start=0, end=2),
        helper.make_node("Concat", ["s", "to"], ["sizes"], axis=0),
        helper.make_node("Resize", ["t", "", "", "sizes"], ["r"], mode="cubic"),
        helper.make_node("Mul", ["r", "by"], ["m"]),
        helper.make_node("Transpose", ["m"], ["y"], perm=[0, 2, 3, 1]),
    ]
    if single:  # it takes one pixel only
        nodes[0].input[0] = "pixel"
        nodes.insert(0, helper.make_node("Reshape", ["x", "one"], ["pixel"]))
    inputs, outputs = [("x", F, [1, height, height, 3])], [("y", F, [1, 4, 4, 3])]
    weights = {"to": np.array([4, 4]), "by": np.float32(factor), "one": np.array([1, 1, 1, 3])}
    return model(nodes, inputs, outputs, weights)


def test_where_the_runtimes_optimiser_breaks_the_original_the_models_are_compared_without_it():
    found = verify_models(enlarged(), enlarged())
    assert found.passed and "without the runtime's own optimiser where that breaks the original" in found.message
    assert len(found.sizes) == 4 and found.trials == 5
    wrong = verify_models(enlarged(), enlarged(factor=2.5))
    assert not wrong.passed and wrong.failed == (0, 1, 2, 3, 4)
    verifier = Verifier(enlarged())
    assert (
        not verifier.verify(enlarged(factor=2.5), trials=[0]).passed and verifier.verify(enlarged(), trials=[0]).passed
    )


def test_what_fails_at_more_sizes_than_the_original_is_wrong():
    found = verify_models(enlarged(), enlarged(single=True))
    assert not found.passed and "fails where the original does not" in found.message


def test_a_model_that_the_runtimes_optimiser_always_breaks_is_not_compared():
    with pytest.raises(SessionError, match="the runtime's own optimiser breaks the original"):
        verify_models(enlarged(9), enlarged(9))
