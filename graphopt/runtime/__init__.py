"""Sessions, made-up inputs, paired timing, kernel profiles and the environment they are valid in.

The only package that imports onnxruntime. Import the modules directly: this file stays empty so that asking for
``graphopt.runtime.environment`` does not load the runtime.

    dtypes       element types: the names ONNX, numpy and the runtime use for them
    providers    execution providers by short name, and which are installed here
    session      a model in memory or on disk, opened and run
    feeds        made-up inputs for a session
    timing       which of two models is faster, with an interval
    profile      time per kernel, and the graph the runtime really runs
    precision    the coarsest arithmetic inside a model
    environment  what a measurement depends on, as a digest
"""
