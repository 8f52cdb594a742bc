"""One model: rewritten by rules at random places, nothing priced, and compared with what it was."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from immutables import Map
from onnx import ModelProto, helper, numpy_helper

from graphopt.errors import GraphoptError, SessionError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.ir.types import MADE_UP
from graphopt.onnxio.bodies import graphs
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import LoadableModel, Session
from graphopt.search.cleaning import alone
from graphopt.verification.numeric import verify_models
from tests.fuzz.draft import DEADLY, FLOATS, LARGE, PLAIN, Array, Draft, Input
from tests.fuzz.forms import formed
from tests.fuzz.plants import plant
from tests.fuzz.recipes import NAMES, RECIPES
from tests.ir.check import problems

SAME, CHANGED, CRASHED, REFUSED = "same", "changed", "crashed", "refused"
_STEPS = 6
_HAND = 120  # rules
_HALF = 0.1  # share of the models that are float16 between their ends
# Kernels that treat the elements of a vector register and those left over by different arithmetic.
_ROUNDING = frozenset(
    {"Exp", "Log", "Tanh", "Sigmoid", "Erf", "Gelu", "Softmax", "LogSoftmax", "MatMul", "Gemm", "Conv", "ConvTranspose",
     "Einsum", "Elu", "Celu", "Selu", "Softplus", "Mish", "Swish", "HardSwish", "HardSigmoid", "ReduceSum", "ReduceMean",
     "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd", "AveragePool",
     "GlobalAveragePool", "LpPool", "LayerNormalization", "InstanceNormalization", "BatchNormalization", "LpNormalization",
     "Pow", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Softsign", "CumSum", "Mean", "Sum", "Resize", "QuickGelu",
     "FusedMatMul", "BiasGelu", "FastGelu", "SimplifiedLayerNormalization", "RMSNormalization", "GroupNormalization",
     "Reciprocal", "Div", "Sqrt"}
)  # fmt: skip
_JUMPS = frozenset(
    {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Sign", "Round", "Floor", "Ceil", "Cast", "ArgMax", "ArgMin", "TopK",
     "Hardmax", "Mod", "ReduceProd", "Shrink", "ThresholdedRelu", "LpNormalization", "Reciprocal", "Div", "Log", "Sin", "Cos", "Tan", "QuantizeLinear", "DynamicQuantizeLinear"}
)  # fmt: skip
"""Operators that make much of a last place, or of what takes the place of a zero."""
_PACKED = frozenset({"i4", "u4", "i2", "u2"})  # several elements to a byte as an output of the runtime
_RTOL = {"float32": 2e-4, "float64": 1e-9, "float16": 2e-2, "bfloat16": 1e-1}
_RTOL |= dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int4", "uint4"), 0.0)  # quantised


@dataclass(frozen=True)
class Case:
    """A model and what it is run on.

    Attributes:
        model: The model.
        inputs: Its inputs.
        bindings: Sizes of its symbols, several.
        planted: Rules whose patterns were planted.
    """

    model: ModelProto
    inputs: tuple[Input, ...]
    bindings: tuple[Mapping[str, int], ...]
    planted: tuple[str, ...] = ()

    def feeds(self) -> list[dict[str, Array]]:
        """Inputs at each of the bindings."""
        return [{i.name: i.array(b, n) for i in self.inputs} for n, b in enumerate(self.bindings)]


@dataclass(frozen=True)
class Verdict:
    """What became of a model.

    Attributes:
        outcome: One of the four.
        reason: What is wrong, or why it was refused.
        steps: Rules that were applied, in order.
        compared: At how many bindings the original runs.
        refusals: Rules that the engine refused to apply, with the reason.
        model: For a failure: the model before the step that did harm.
        rule: For a failure: that step's rule; empty where it fails without a rule.
    """

    outcome: str
    reason: str = ""
    steps: tuple[str, ...] = ()
    compared: int = 0
    refusals: tuple[tuple[str, str], ...] = ()
    model: ModelProto | None = field(default=None, repr=False)
    rule: str = ""


def hands(library: Library) -> list[Library]:
    """The rules in a few hands: a model meets those of one, which is quicker than all; and the whole, for a model in ten."""
    rules = library.rules
    count = max(1, len(rules) // _HAND)
    return [*(Library(rules[i::count], library.ending) for i in range(count)), library]


def hand(libraries: Sequence[Library], index: int) -> Library:
    """The rules that a model meets."""
    return libraries[-1] if index % 10 == 0 else libraries[index % (len(libraries) - 1 or 1)]


def draw(seed: int, index: int, library: Library) -> Case | None:
    """The model of a seed and a number; ``None`` where no valid one came out."""
    rng = np.random.default_rng((seed, index))
    draft = Draft(rng, int(rng.integers(7, 26)), half=bool(rng.random() < _HALF))
    wanted = draft.number(0, 3)
    for n in range(wanted):
        plant(draft, draft.choice(library.rules), settle=n == 0)
    size = len(draft.nodes) + draft.number(0 if draft.nodes else 3, 5 if draft.nodes else 9)
    for _ in range(3 * size):
        if len(draft.nodes) >= size:
            break
        RECIPES[draft.choice(NAMES)](draft)
    if not any(n.op_type != "Constant" for n in draft.nodes):
        return None
    model = formed(draft, draft.model())
    return Case(model, tuple(draft.inputs), tuple(_bindings(draft)), tuple(draft.planted))


def _bindings(draft: Draft) -> list[dict[str, int]]:
    """The sizes of a draft, all of them 1, all of them others, and one of them 0; without symbols other contents alone."""
    base = draft.sizes
    if not base:
        return [{}, {}]
    found = [dict(base), dict.fromkeys(base, 1), {s: n + 2 + i for i, (s, n) in enumerate(base.items())}]
    if any(n.op_type in DEADLY for n in draft.nodes):
        return found
    empty = draft.choice(list(base))
    return [*found, {**base, empty: 0}]


def run(model: ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[list[Any] | None]:
    """Outputs at each of some inputs; ``None`` where the model fails.

    Raises:
        SessionError: The runtime refuses the model.
    """
    found: list[list[Any] | None] = []
    with Session(LoadableModel(model.SerializeToString()), PLAIN) as session:
        names = {spec.name for spec in session.input_specs}
        for each in feeds:
            try:
                found.append(session.run({n: a for n, a in each.items() if n in names}))
            except SessionError:
                found.append(None)
    return found


def asked(model: ModelProto, names: Sequence[str], feeds: Sequence[Mapping[str, Array]]) -> list[list[Any] | None]:
    """Any values of a model at each of some inputs; ``None`` where it fails, or has outputs that may not be asked for."""
    whole = ModelProto()
    whole.CopyFrom(model)
    whole.graph.ClearField("output")
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    try:
        return run(whole, feeds) if names else [[] for _ in feeds]
    except GraphoptError:
        return [None] * len(feeds)


def trial(case: Case, library: Library, seed: int, only: str = "") -> Verdict | None:
    """Rewrite a model and compare; ``None`` for a model that the runtime does not run.

    Args:
        case: The model.
        library: The rules.
        seed: Of the choice of places.
        only: Apply this rule alone, at every place at once one after the other.
    """
    feeds = _with_weights(case)
    try:
        before = run(case.model, feeds)
    except GraphoptError:
        return None
    ran = [i for i, outputs in enumerate(before) if outputs is not None]
    if not ran or any(n.op_type == "Dropout" and len(n.input) > 2 for n in case.model.graph.node):  # which may draw
        return None
    try:
        model = load(case.model)
    except GraphoptError as error:
        return Verdict(REFUSED if str(error) else CRASHED, str(error), compared=len(ran))
    except Exception:
        return Verdict(CRASHED, f"load: {_last_line()}", compared=len(ran), model=case.model)
    return _rewritten(case, model, library, feeds, before, seed, only)


def _with_weights(case: Case) -> list[dict[str, Array]]:
    """Inputs, and where initializers are inputs as well, those."""
    weights = {t.name: numpy_helper.to_array(t) for t in case.model.graph.initializer}
    return [{**weights, **each} for each in case.feeds()]


def _rewritten(
    case: Case,
    model: Model,
    library: Library,
    feeds: Sequence[Mapping[str, Array]],
    before: Sequence[Any],
    seed: int,
    only: str,
) -> Verdict:
    rng = np.random.default_rng((seed, 77))
    graphs: list[Graph] = []
    steps: list[str] = []
    refusals: list[tuple[str, str]] = []
    compared = sum(outputs is not None for outputs in before)
    at = "simplify"
    try:
        graphs.append(simplify(model.graph))
        wrong = misjudged(case, graphs[0], feeds)
        if wrong:
            return Verdict(CHANGED, wrong, (), compared, (), case.model, "")
        sites = Sites.of(graphs[0], library)
        for _ in range(_STEPS if only else int(rng.integers(1, _STEPS))):
            match = _chosen(sites, rng, case.planted, steps, only)
            if match is None:
                break
            at = match.rule.id
            try:
                graph, delta = alone(graphs[-1], match)
            except RefusedError as refusal:
                refusals.append((at, str(refusal)))
                if not str(refusal):
                    return Verdict(
                        CRASHED, "refused without a reason", (*steps, at), compared, tuple(refusals), case.model, at
                    )
                sites = _without(sites, match)
                continue
            graphs.append(graph)
            steps.append(at)
            at = "matching"
            sites = sites.after(graph, delta)
    except Exception:
        where = case.model if not graphs else _proto(model, graphs[-1])
        return Verdict(CRASHED, f"{at}: {_last_line()}", (*steps, at), compared, tuple(refusals), where, at)
    verdict = _judged(case, model, graphs[-1], feeds, before, _claim(library, steps))
    found = None if verdict is None else _blamed(case, model, graphs, steps, library, feeds)
    if found is None:
        return Verdict(SAME, "", tuple(steps), compared, tuple(refusals))
    (outcome, reason), rule, earlier = found
    return Verdict(outcome, reason, tuple(steps), compared, tuple(refusals), earlier, rule)


def misjudged(case: Case, graph: Graph, feeds: Sequence[Mapping[str, Array]]) -> str:
    """A value whose shape or dtype is not what the engine believes; empty for none."""
    made = {o for n in case.model.graph.node for o in n.output if o and n.op_type != "Constant"}
    values = {v.name: v.type for v in graph.values.values() if v.name in made}
    runs = asked(case.model, list(values), feeds)
    for sizes, arrays in zip(case.bindings, runs, strict=False):
        # A dimension of an input that is called as ONNX calls what it does not know has another name in the graph.
        named = {symbol: n for symbol, n in sizes.items() if not symbol.startswith(MADE_UP)}
        hollow = 0 in sizes.values() or any(isinstance(a, np.ndarray) and a.size == 0 for a in arrays or ())
        for (name, type), array in zip(values.items(), arrays or (), strict=False):
            if type.shape is None or not isinstance(array, np.ndarray) or type.dtype in _PACKED:
                continue
            said = [
                named.get(d, n) if isinstance(d, str) else n if d is None else d
                for d, n in zip(type.shape, array.shape, strict=False)
            ]
            # Where a dimension is 0, so is the target of a Reshape that is computed from it, and copies another one instead.
            if hollow and len(type.shape) == array.ndim and (array.size == 0 or _reshapes(case.model)):
                continue
            if len(type.shape) != array.ndim or said != list(array.shape):
                return f"{name} is believed to be {type} and is {list(array.shape)} at {dict(sizes)}"
    return ""


def _reshapes(model: ModelProto) -> bool:
    """Whether a model reshapes to what it computes."""
    made = {o for n in model.graph.node if n.op_type != "Constant" for o in n.output}
    return any(n.op_type == "Reshape" and n.input[1:2] and n.input[1] in made for n in model.graph.node)


def _blamed(
    case: Case,
    model: Model,
    graphs: Sequence[Graph],
    steps: Sequence[str],
    library: Library,
    feeds: Sequence[Mapping[str, Array]],
) -> tuple[tuple[str, str], str, ModelProto] | None:
    """What the first step does that does harm, its rule, and the model before it; ``None`` where each step keeps to its own claim.

    Then what differs at the end has an excuse that only its own step can tell: a Floor behind a rounding, which a later step moved on.
    """
    earlier = case.model
    for number, graph in enumerate(graphs):
        rule = steps[number - 1] if number else ""
        verdict = _judged(
            replace(case, model=earlier),
            model,
            graph,
            feeds,
            run(earlier, feeds),
            _claim(library, [rule] if rule else []),
        )
        if verdict is not None:
            return verdict, rule, earlier
        earlier = _proto(model, graph)
    return None


def _chosen(
    sites: Sites, rng: np.random.Generator, planted: Sequence[str], steps: Sequence[str], only: str
) -> Match | None:
    """A place: of the planted rules first, then of rules that have not been applied."""
    keys = sorted(sites.matches)
    if only:
        keys = [k for k in keys if k[0] == only]
    fresh = [k for k in keys if k[0] in planted and k[0] not in steps] or [k for k in keys if k[0] not in steps] or keys
    return sites.matches[fresh[int(rng.integers(len(fresh)))]] if fresh else None


def _without(sites: Sites, match: Match) -> Sites:
    key = (match.rule.id, match.nodes)
    matches = {k: m for k, m in sites.matches.items() if k != key}
    by_node = {n: tuple(k for k in keys if k != key) for n, keys in sites.by_node.items()}
    return Sites(sites.library, Map(matches), Map(by_node), sites.block, ())


def _claim(library: Library, steps: Sequence[str]) -> str:
    """What some steps claim together: that of the weakest."""
    made = {library.by_id[rule].claim for rule in steps}
    return next((claim for claim in ("approx", "real") if claim in made), "exact")


def _proto(model: Model, graph: Graph) -> ModelProto:
    return to_proto(emit(model, graph))


def _judged(
    case: Case, model: Model, graph: Graph, feeds: Sequence[Mapping[str, Array]], before: Sequence[Any], claim: str
) -> tuple[str, str] | None:
    """What is wrong with a graph; ``None`` for nothing."""
    wrong = problems(graph)
    if wrong:
        return CRASHED, f"invalid graph: {wrong[0]}"
    try:
        proto = _proto(model, graph)
    except Exception:
        return CRASHED, f"emit: {_last_line()}"
    usable = [i for i, outputs in enumerate(before) if outputs is not None]
    try:
        after = run(proto, [feeds[i] for i in usable])
    except GraphoptError as error:
        return CRASHED, f"does not open: {error}"
    for place, i in enumerate(usable):
        made = after[place]
        if made is None:
            return CRASHED, f"does not run at {dict(case.bindings[i])}, where the original does"
        if claim != "exact" and not all(np.isfinite(a).all() for a in feeds[i].values() if a.dtype.kind in "fV"):
            continue  # laws of real numbers say nothing of what is none
        if claim == "approx" and any(_large(feeds[i][given.name]) for given in case.inputs if given.dtype in FLOATS):
            continue  # an approximation says nothing of what lies outside its domain
        said = "real" if claim == "exact" and _rounds(case.model) else claim
        message = difference(before[i], made, said)
        if message and (said == "exact" or not _excused(case, proto, feeds[i], message)):
            return CHANGED, f"at {dict(case.bindings[i])}: {message}"
    return None


def _large(array: Array) -> bool:
    """Whether an input is one of those that hold larger numbers than others."""
    return bool((np.abs(array.astype(np.float64)) > LARGE).any())


def _excused(case: Case, proto: ModelProto, feeds: Mapping[str, Array], message: str) -> bool:
    """Whether a law of real numbers says nothing here: rounding decides, or the original computes with what is no number."""
    return (
        _within_rounding(case, proto, feeds, message)
        or _jumps(case.model, proto, feeds)
        or _leaves_the_reals(case, feeds)
    )


def _jumps(model: ModelProto, proto: ModelProto, feeds: Mapping[str, Array]) -> bool:
    """Whether every value that differs comes from another that does, or is what an operator that jumps makes of values that agree."""
    one, two = ({**feeds, **_everything(each, feeds)} for each in (model, proto))
    agree = {name: not difference([one[name]], [two[name]], "real") for name in one.keys() & two.keys()}
    others = {(n.op_type, *n.output): n for n in proto.graph.node}

    def near(a: str, b: str) -> bool:
        return a == b or (a in one and b in two and not difference([one[a]], [two[b]], "real"))

    for node in model.graph.node:
        if all(agree.get(o, True) for o in node.output):
            continue
        other = others.get((node.op_type, *node.output))
        jumps = (
            node.op_type in _JUMPS
            and other is not None
            and len(other.input) == len(node.input)
            and all(map(near, node.input, other.input))
        )
        if not jumps and all(agree.get(i, True) for i in node.input):
            return False
    return not all(agree.values())


def _everything(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """All values that a model computes; none where it can't be asked."""
    names = list(
        dict.fromkeys([*(o.name for o in model.graph.output), *(o for n in model.graph.node for o in n.output if o)])
    )
    (outputs,) = asked(model, names, [feeds])
    return {name: array for name, array in zip(names, outputs or (), strict=False) if isinstance(array, np.ndarray)}


def _leaves_the_reals(case: Case, feeds: Mapping[str, Array]) -> bool:
    """Whether the original computes something that is no number on the way."""
    return any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in _everything(case.model, feeds).values())


def _rounds(model: ModelProto) -> bool:
    nodes = (node for graph in graphs(model.graph) for node in graph.node)
    return any(node.op_type in _ROUNDING for node in (*nodes, *(n for f in model.functions for n in f.node)))


def difference(one: Sequence[Any], two: Sequence[Any], claim: str) -> str:
    """What differs between outputs, given what the rules claim; empty for nothing."""
    for number, (a, b) in enumerate(zip(one, two, strict=True)):
        if a.dtype == b.dtype and a.size == b.size == 0:
            continue  # a Reshape whose target turns out 0 copies a dimension instead: which one is 0 may differ
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"output {number} is {b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        if a.dtype.kind in "biu" and claim == "approx":
            continue  # what looks at an approximation closely may see it
        if a.dtype.kind in "biu" or a.dtype == object or a.size == 0:
            if not np.array_equal(a, b):
                return f"output {number} differs: {np.ravel(a)[:4]} became {np.ravel(b)[:4]}"
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        if claim == "exact":
            if not np.array_equal(x, y, equal_nan=True) or (np.signbit(x) != np.signbit(y))[~np.isnan(x)].any():
                return f"output {number} differs in some bits: {_worst(x, y)}"
            continue
        # What is no real number before is out of the reach of a law of real numbers; an approximation may underflow besides.
        finite = np.isfinite(x)
        if not np.isfinite(y[finite]).all() and claim == "real":
            return f"output {number}: finite, and no longer"
        finite &= np.isfinite(y)
        scale = max(1.0, float(np.abs(x[finite]).max(initial=0.0)))
        if (np.abs(x[finite] - y[finite]) > _RTOL[a.dtype.name] * scale).any():
            return f"output {number}: {_worst(x, y)}"
    return ""


def _worst(x: Array, y: Array) -> str:
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(x - y), nan=0.0, posinf=0.0)
    place = np.unravel_index(int(gap.argmax()), gap.shape) if gap.ndim else ()
    return f"{x[place]:.9g} became {y[place]:.9g}"


def _within_rounding(case: Case, proto: ModelProto, feeds: Mapping[str, Array], message: str) -> bool:
    """Whether the original itself moves as far when its inputs move in the last place."""
    if " is " in message and " instead of " in message:
        return False
    try:
        verdict = verify_models(
            LoadableModel(case.model.SerializeToString()), LoadableModel(proto.SerializeToString()), config=PLAIN,
            overrides={i.name: feeds[i.name] for i in case.inputs}, trials=1,
        )  # fmt: skip
    except GraphoptError:
        return False
    return verdict.passed


def _last_line() -> str:
    """The error that is being handled, and where it came from."""
    lines = traceback.format_exc().strip().splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File") and "graphopt" in line]
    place = places[-1].replace('File "', "").replace('"', "") if places else ""
    return f"{lines[-1]} ({'graphopt' + place.rpartition('graphopt')[2]})" if place else lines[-1]
