"""Agents that learn to rewrite graphs.

In the order in which training flows through them:

- ``task``, ``reward``: what is seen, done and paid for, as a YAML file;
- ``features``, ``rule_features``: graphs and rules as numpy arrays;
- ``prepare``, ``scene``, ``episode``: a model made ready, and one run over it; ``env`` is the same for Gymnasium;
- ``encoder``, ``controller``, ``world_model``: the networks (torch); ``pretrain`` trains the encoder by itself;
- ``collect``, ``rollout``, ``replay``: episodes on an executor, and what a world model learns from them;
- ``ppo``; ``dreamer``, ``dream``: the algorithms;
- ``run``, ``learners``, ``ready``, ``train``, ``checkpoint``: what to train and how, the loop, what is kept; ``evaluate``, ``trial``, ``evaluation``, ``curves``: what came of it;
- ``export``, ``agent``: a trained agent as ONNX, and as a strategy of `graphopt optimize`, without torch.

Importing this package imports neither torch nor a model; it registers ``graphopt/GraphRewrite-v0`` where Gymnasium is installed.
"""

from importlib.util import find_spec

ENVIRONMENT = "graphopt/GraphRewrite-v0"

if find_spec("gymnasium") is not None:
    import gymnasium

    if ENVIRONMENT not in gymnasium.registry:
        # Gymnasium's own wrapper would count steps a second time: the task's budget is the limit.
        gymnasium.register(ENVIRONMENT, entry_point="graphopt.rl.env:GraphRewrite", max_episode_steps=None)
