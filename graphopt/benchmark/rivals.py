"""Other runtimes that run a model: each in a process of its own that stays alive while a case is measured.

The process needs its runtime and numpy, nothing of graphopt, so that it may be that of another virtual environment where packages exclude each
other: the one called like the rival in the folder that ``GRAPHOPT_RIVALS`` names. Opening a model there includes all compiling and the first run,
and is told apart; what is timed afterwards is the steady state, on the same inputs, with as many threads.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphopt.benchmark.children import Respondent
from graphopt.benchmark.worker import save_feeds
from graphopt.config import folder_named
from graphopt.errors import SessionError
from graphopt.ir.types import Array
from graphopt.runtime.given import load_npz
from graphopt.runtime.timing import GRAIN_S, Length, Turn

LIMIT_S = 600.0
"""Seconds that a rival may take to open a model, or to answer."""
_CLOCKED_S = 1.0
"""Seconds of single runs that tell how fast a runtime is."""


@dataclass(frozen=True)
class RivalRuntime:
    """Another runtime.

    Attributes:
        modules: What must be importable.
        install: What pip has to install.
        package: The distribution whose version is told.
        code: Opens ``model`` with ``threads``, and sets ``run``, which takes ``feeds`` (arrays by name) and returns the outputs in their order.
    """

    modules: tuple[str, ...]
    install: str
    package: str
    code: str


RIVALS = {
    "openvino": RivalRuntime(
        ("openvino",),
        "openvino",
        "openvino",
        """
import openvino
# As precise as the model is written: on some processors the default is bfloat16.
settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
compiled = openvino.Core().compile_model(model, "CPU", settings)
request = compiled.create_infer_request()
def run(feeds):
    request.infer(feeds)
    return [request.get_output_tensor(i).data for i in range(len(compiled.outputs))]
""",
    ),
    "torch-compile": RivalRuntime(
        ("torch", "onnx2torch", "onnx"),
        "torch onnx2torch",
        "torch",
        """
import onnx, onnx2torch, torch
torch.set_num_threads(threads)
proto = onnx.load(model)
weights = {tensor.name for tensor in proto.graph.initializer}
names = [given.name for given in proto.graph.input if given.name not in weights]
module = torch.compile(onnx2torch.convert(proto).eval())
def run(feeds):
    with torch.inference_mode():
        found = module(*[torch.from_numpy(feeds[name]) for name in names])
    return [each.numpy() for each in (found if isinstance(found, (list, tuple)) else [found])]
""",
    ),
    "iree": RivalRuntime(
        ("iree.compiler", "iree.runtime", "onnx"),
        "iree-base-compiler[onnx] iree-base-runtime",
        "iree-base-runtime",
        """
import subprocess, iree.runtime, onnx
from iree.compiler.tools import compile_file
proto = onnx.load(model, load_external_data=False)
weights = {tensor.name for tensor in proto.graph.initializer}
names = [given.name for given in proto.graph.input if given.name not in weights]
subprocess.run([sys.executable, "-m", "iree.compiler.tools.import_onnx", model, "-o", "model.mlir", "--opset-version", "17"], check=True)
compile_file("model.mlir", input_type="onnx", output_file="model.vmfb", target_backends=["llvm-cpu"],
    extra_args=["--iree-llvmcpu-target-cpu=host"])
if threads > 1:
    iree.runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
module = iree.runtime.load_vm_flatbuffer_file("model.vmfb", driver="local-task" if threads > 1 else "local-sync")
entry = module[proto.graph.name]
def run(feeds):
    found = entry(*[feeds[name] for name in names])
    return [each.to_host() for each in (found if isinstance(found, (list, tuple)) else [found])]
""",
    ),
    "tvm": RivalRuntime(
        ("tvm", "onnx"),
        "apache-tvm onnx psutil cloudpickle xgboost-cpu",
        "apache-tvm",
        """
import os
os.environ["TVM_NUM_THREADS"] = str(threads)
import onnx, tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
proto = onnx.load(model)
weights = {tensor.name for tensor in proto.graph.initializer}
names = [given.name for given in proto.graph.input if given.name not in weights]
module = from_onnx(proto, shape_dict={name: list(feeds[name].shape) for name in names}, sanitize_input_names=False)
target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads})
with target:
    prepare = [relax.transform.DecomposeOpsForInference(), relax.transform.CanonicalizeBindings(), relax.get_pipeline("zero")]
    module = tvm.transform.Sequential(prepare)(module)
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
def run(feeds):
    found = machine["main"](*[tvm.runtime.tensor(feeds[name]) for name in names])
    return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]
""",
    ),
    "xla": RivalRuntime(
        ("jax", "jaxonnxruntime", "absl", "onnx"),
        "jax jaxonnxruntime absl-py onnx",
        "jax",
        """
import functools, os
os.environ["NPROC"] = str(threads)  # the size of its pools of threads
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_TRACEBACK_FILTERING"] = "off"  # the last line then says what is wrong
import jax, onnx
jax.config.update("jax_enable_x64", True)  # int64 stays int64
from jaxonnxruntime import call_onnx
computed, weights = call_onnx.call_onnx_model(onnx.load(model), feeds)
compiled = jax.jit(functools.partial(computed, weights))
def run(feeds):
    return [np.asarray(each) for each in compiled(feeds)]
""",
    ),
    "tensorrt": RivalRuntime(
        ("tensorrt", "cuda"),
        "tensorrt cuda-python (and an NVIDIA GPU with its driver)",
        "tensorrt",
        """
import tensorrt
from cuda.bindings import runtime as cuda
def done(answer):
    if answer[0] != cuda.cudaError_t.cudaSuccess:
        raise RuntimeError(f"CUDA: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None
if done(cuda.cudaGetDeviceCount()) < 1:
    raise RuntimeError("no NVIDIA GPU")
logger = tensorrt.Logger(tensorrt.Logger.ERROR)
builder = tensorrt.Builder(logger)
network = builder.create_network(0)
parser = tensorrt.OnnxParser(network, logger)
if not parser.parse_from_file(model):
    raise RuntimeError("; ".join(parser.get_error(i).desc() for i in range(parser.num_errors)))
config = builder.create_builder_config()
config.clear_flag(tensorrt.BuilderFlag.TF32)  # as precise as the model is written
profile = builder.create_optimization_profile()
for i in range(network.num_inputs):
    given = network.get_input(i)
    shape = feeds[given.name].shape
    if given.is_shape_tensor:
        raise RuntimeError(f"input {given.name} holds a shape")
    profile.set_shape(given.name, shape, shape, shape)
config.add_optimization_profile(profile)
built = builder.build_serialized_network(network, config)
if built is None:
    raise RuntimeError("it could not build an engine")
engine = tensorrt.Runtime(logger).deserialize_cuda_engine(built)
context, stream = engine.create_execution_context(), done(cuda.cudaStreamCreate())
places = {}
def place(name, size):
    if places.get(name, (None, -1))[1] < size:
        places[name] = done(cuda.cudaMalloc(max(size, 1))), size
    context.set_tensor_address(name, int(places[name][0]))
    return places[name][0]
def run(feeds):
    for i in range(network.num_inputs):
        name = network.get_input(i).name
        value = np.ascontiguousarray(feeds[name])
        context.set_input_shape(name, value.shape)
        target = place(name, value.nbytes)
        done(cuda.cudaMemcpy(target, value.ctypes.data, value.nbytes, cuda.cudaMemcpyKind.cudaMemcpyHostToDevice))
    results = []
    for i in range(network.num_outputs):
        name = network.get_output(i).name
        result = np.empty(tuple(context.get_tensor_shape(name)), tensorrt.nptype(engine.get_tensor_dtype(name)))
        results.append((result, place(name, result.nbytes)))
    if not context.execute_async_v3(stream):
        raise RuntimeError("the engine did not run")
    done(cuda.cudaStreamSynchronize(stream))
    for result, source in results:
        done(cuda.cudaMemcpy(result.ctypes.data, source, result.nbytes, cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost))
    return [result for result, _ in results]
""",
    ),
}
"""What a user writes who follows the tool's manual."""

_CHILD = """
import json, os, sys, time
import numpy as np
from importlib.metadata import version
model, feeds_file, threads, package = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def read(file):
    with np.load(file, allow_pickle=False) as found:
        return {{name: found[name] for name in found.files}}
feeds = read(feeds_file)
begin = time.perf_counter()
{code}
run(feeds)
def say(told):
    print(json.dumps(told), file=answers, flush=True)
def peak():
    try:
        lines = open("/proc/self/status").read().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), None)
say({{"opened": time.perf_counter() - begin, "peak": peak(), "version": version(package)}})
for line in sys.stdin:
    question, _, rest = line.strip().partition(" ")
    if question == "clock":
        marks = [time.perf_counter()]
        for _ in range(int(rest)):
            run(feeds)
            marks.append(time.perf_counter())
        say([end - start for start, end in zip(marks, marks[1:])])
    else:
        source, target = json.loads(rest)
        np.savez(target, *[np.asarray(each) for each in run(read(source))])
        say(None)
"""


def python_of(name: str) -> str | None:
    """The interpreter that has a rival: that of its own environment, or this one; ``None`` for none."""
    places = folder_named("GRAPHOPT_RIVALS")
    if places is not None:
        own = places / name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        if own.is_file():
            return str(own)
    try:
        here = all(importlib.util.find_spec(module) is not None for module in RIVALS[name].modules)
    except ModuleNotFoundError:  # of a module in a package that is not there
        here = False
    return sys.executable if here else None


class Opened(Respondent):
    """A model that a rival has opened.

    Args:
        name: One of :data:`RIVALS`.
        model: The file.
        threads: How many it may use.
        feeds: An ``.npz`` file of inputs.
        folder: Where the process runs, and what it writes lies.
        limit: Seconds that opening, and each answer, may take.

    Attributes:
        opened: Seconds that opening took, with all compiling and the first run.
        peak: Peak memory of the process by then, in bytes; None where the system does not tell.
        version: Of the rival.

    Raises:
        SessionError: It can't open or run the model, crashed or did not come to an end.
    """

    def __init__(self, name: str, model: Path, threads: int, feeds: Path, folder: Path, limit: float = LIMIT_S) -> None:
        rival, python = RIVALS[name], python_of(name)
        if python is None:
            raise SessionError(f"not installed: pip install {rival.install}")
        self._folder = folder
        code = _CHILD.format(code=rival.code)
        super().__init__(
            [python, "-c", code, str(model.resolve()), str(feeds.resolve()), str(threads), rival.package],
            folder=folder,
            environment={**os.environ, "OMP_NUM_THREADS": str(threads)},
            limit=limit,
        )
        self.opened: float = self.first["opened"]
        self.peak: int | None = self.first["peak"]
        self.version: str = self.first["version"]

    def outputs(self, feeds: Mapping[str, Array]) -> list[Array]:
        """What it computes of some inputs."""
        source, target = self._folder / "given.npz", self._folder / "found.npz"
        save_feeds(feeds, source)
        self.ask(f"outputs {json.dumps([str(source.resolve()), str(target.resolve())])}")
        found = load_npz(target)
        return [found[f"arr_{number}"] for number in range(len(found))]

    def turn(self, length: Length | None = None) -> Turn:
        """Its turns: repeated and warmed up as those of a session."""
        return _Remote(self, length)

    def clock(self, repeat: int) -> list[float]:
        """Seconds of each of some runs."""
        taken: list[float] = self.ask(f"clock {repeat}")
        return [max(seconds, GRAIN_S) for seconds in taken]

    def soonest(self, enough: float) -> float:
        """Seconds of the fastest of some runs: until one takes no longer than ``enough``, and for a second at most.

        Beside other programs a fast model may wait longer for a processor than it runs.
        """
        best, spent = math.inf, 0.0
        while best > enough and spent < _CLOCKED_S:
            taken = self.clock(2)
            best, spent = min(best, *taken), spent + sum(taken)
        return best


class _Remote(Turn):
    """Turns of a session in another process."""

    def __init__(self, opened: Opened, length: Length | None) -> None:
        self._opened = opened
        super().__init__(self._once, length=length)

    def _once(self) -> None:
        self._opened.clock(1)

    def _clock(self, repeat: int) -> list[float]:
        return self._opened.clock(repeat)
