"""What a graph will cost when ONNX Runtime runs it.

Models behind one protocol, :class:`graphopt.cost.base.CostModel`: a prediction for a whole graph (``of``) and an
update in time proportional to what an edit changed (``after``). Import the modules directly; this file stays empty so
that the analytic model can be used without loading the runtime.

    base       Costs, CostModel, and the bookkeeping that models of windows share
    models     the cost models by name
    windows    which nodes the runtime fuses with which: the unit that has a price
    layout     where the runtime converts between its blocked convolution layout and the plain one
    shapes     a static shape for every value
    analytic   FLOPs and bytes against a roofline, the peak numbers of a machine; or a price for each operator
    fit        the peak numbers of this machine, found once through the runtime
    kernel     windows measured on this machine, the analytic estimate where there is no measurement
    blueprint  what a window looks like apart from its place, and its signature; operands full of denormals
    micro      the little ONNX model that runs one window
    measure    the time of the kernels of such a model
    store      measurements on disk, shared by processes
"""
