"""Where work runs, apart from what the work is: in this process, in local processes, or on a Ray cluster.

An algorithm hands tasks to an :class:`Executor` and gets their results in the order of the tasks. A task says all that its
result depends on (a seed, weights, a model), so the result is the same wherever it runs, and a task whose worker was lost is
simply run again. The idea is RLgraph's (Schaarschmidt et al., 2019): execution is a component of its own.
"""

from graphopt.execution.base import KINDS, Executor, WorkerLostError, make_executor

__all__ = ["KINDS", "Executor", "WorkerLostError", "make_executor"]
