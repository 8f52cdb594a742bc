"""Agents that learn to rewrite graphs.

What `graphopt optimize` needs to use an agent:

- ``task``, ``reward``: what is seen, done and paid for, as a YAML file;
- ``features``, ``rule_features``: graphs and rules as numpy arrays;
- ``task_environment``, ``episode``, ``play``: a model made ready, one run over it, and many side by side;
- ``manifest``, ``agent``: what an agent is, and a trained one as a strategy, without torch.

What makes and judges agents stands apart: :mod:`graphopt.rl.training`, and :mod:`graphopt.rl.evaluation`, which may use it.

Importing this package imports neither torch nor a model; it registers ``graphopt/GraphRewrite-v0`` where Gymnasium is installed.
"""

from importlib.util import find_spec

ENVIRONMENT = "graphopt/GraphRewrite-v0"

if find_spec("gymnasium") is not None:
    import gymnasium

    if ENVIRONMENT not in gymnasium.registry:
        # Gymnasium's own wrapper would count steps a second time: the task's budget is the limit.
        gymnasium.register(ENVIRONMENT, entry_point="graphopt.rl.training.env:GraphRewrite", max_episode_steps=None)
