"""Sessions, made-up inputs, paired timing, kernel profiles and the environment they are valid in.

The only package that imports onnxruntime, in ``ort``. Import the modules directly: this file stays empty so that asking for
``graphopt.runtime.environment`` does not load the runtime.

    packages     which packages of the runtime are installed, and whether they get in each other's way
    ort          the runtime itself, or what to do where it can't be imported
    log          what it says of a failure
    providers    execution providers by short name, and how a session is told to use one
    survey       which of them start on this machine
    placement    which provider runs which nodes of a session
    binding      values where a session wants them, on a device or the host
    session      a model in memory or on disk, opened and run
    kernels      which nodes the CPU provider has a kernel for
    feeds        made-up inputs for a session
    given        inputs that a user gives
    vocabulary   inputs whose elements come out of a list
    rounds       models in interleaved rounds, over sessions that are opened again and again
    timing       from rounds to ratios, intervals and verdicts
    distance     how far apart the processors are that threads run on
    interfaces   what the names of inputs say, by a table
    ties         sizes that depend on each other
    sizes        sizes that a model runs at
    guard        sessions in a process of their own, for models that nobody knows yet; guarded is that process
    profile      time per kernel, and the graph the runtime really runs
    precision    the coarsest arithmetic inside a model
    environment  what a measurement depends on, as a digest
"""
