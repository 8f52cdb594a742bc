"""Proximal policy optimisation, in one file.

Schulman et al., "Proximal Policy Optimization Algorithms", 2017, with generalised advantage estimation (Schulman et al., 2016).
What is particular here:

- The mask is applied to the logits before the softmax, in the update as in sampling, and in the entropy (Huang & Ontañón, "A
  Closer Look at Invalid Action Masking in Policy Gradient Algorithms", 2022).
- Running out of the budget is truncation: the value of the last state stands for what would have followed.
- Advantages are normalised for each model by itself: one model's best plan saves half of the time, another's a tenth of a per
  cent, and both are to be found.
- Values are learned on a logarithmic scale for the same reason.

Metrics of an update, as they are logged:

- ``policy_loss``: the clipped surrogate; its sign means little, a drift away from 0 means large steps.
- ``value_loss``: Huber loss of the returns, as symlog.
- ``entropy``: of the policy over the legal actions, in nats, mean over states; 0 is certain.
- ``approx_kl``: how far the policy has moved from the one that played, in nats (Schulman's k3 estimator).
- ``clip_fraction``: share of the actions whose probability ratio left the clipping range.
- ``explained_variance``: of the returns by the values before the update; 1 is perfect, 0 no better than their mean.
- ``gradient_norm``: before clipping, mean over the minibatches.
- ``epochs``: passes made before ``target_kl`` ended them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter

from graphopt.rewrite.schema import Rule
from graphopt.rl.features import PRIOR, Batch, Observation
from graphopt.rl.play import Doubles, Played, Trajectory
from graphopt.rl.training.controller import Controller, Tensors, symlog
from graphopt.rl.training.replay_buffer import Record

METRICS = (
    "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "gradient_norm", "epochs",
)  # fmt: skip
_MIN_ADVANTAGE_STD = 0.05
"""Per cent of saving: advantages that differ by less are not blown up to matter."""


@dataclass(frozen=True)
class PPO:
    """Settings of the algorithm.

    Attributes:
        learning_rate: Learning rate of Adam.
        gamma: Discount; 1, because an episode is short and only its end counts.
        lam: Lambda of the advantage estimation.
        clip: Range of the probability ratio.
        epochs: Passes over a batch.
        minibatch: States of a gradient step.
        entropy: Weight of the entropy at the start; it falls to a twentieth.
        prior_regularisation: Weight of the squared distance from the scores of the prior policy, summed over the actions of a state.
            Without it a policy that has become certain learns nothing more there, for its other actions are never tried.
        value: Weight of the value loss.
        gradient: Largest norm of a gradient.
        target_kl: Where the passes end early.
    """

    learning_rate: float = 5e-4
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 4
    minibatch: int = 64
    entropy: float = 0.03
    prior_regularisation: float = 0.0
    value: float = 0.5
    gradient: float = 0.5
    target_kl: float = 0.05


def advantages(played: Played, gamma: float, lam: float) -> tuple[Doubles, Doubles]:
    """Advantages and returns, (steps,) each.

    The last value is 0 after STOP and the policy's own where the budget cut the episode off, so that truncation bootstraps.
    """
    steps = len(played.actions)
    found = np.zeros(steps)
    ahead = 0.0
    for t in reversed(range(steps)):
        td_error = played.rewards[t] + gamma * played.values[t + 1] - played.values[t]
        found[t] = ahead = td_error + gamma * lam * ahead
    return found, found + played.values[:-1]


@dataclass(frozen=True, eq=False)
class Samples:
    """Steps of several episodes, one after the other.

    Attributes:
        actions: Chosen, (steps,).
        log_probs: Under the policy that chose, (steps,).
        advantages: Normalised for each model, (steps,).
        returns: (steps,).
        values: Expected when the action was chosen, (steps,).
    """

    actions: npt.NDArray[np.int64]
    log_probs: Doubles
    advantages: Doubles
    returns: Doubles
    values: Doubles

    @classmethod
    def of(cls, played: Sequence[Played], settings: PPO) -> Samples:
        """The steps of some episodes."""
        each = [advantages(t, settings.gamma, settings.lam) for t in played]
        pooled: dict[str, Doubles] = {}
        for model in {t.model for t in played}:
            pooled[model] = np.concatenate([a for t, (a, _) in zip(played, each, strict=True) if t.model == model])
        normal = [
            (a - pooled[t.model].mean()) / (pooled[t.model].std() + _MIN_ADVANTAGE_STD)
            for t, (a, _) in zip(played, each, strict=True)
        ]
        return cls(
            np.concatenate([t.actions for t in played]),
            np.concatenate([t.log_probs for t in played]),
            np.concatenate(normal),
            np.concatenate([r for _, r in each]),
            np.concatenate([t.values[:-1] for t in played]),
        )


@dataclass(frozen=True, eq=False)
class PolicyOutput:
    """What a policy says of some states now, laid end to end.

    Attributes:
        logits: Scores of the actions, (actions,).
        features: Features of the actions, (actions, :data:`graphopt.rl.features.ACTION_WIDTH`).
        mask: Which are legal, (actions,).
        graph: State of each action, (actions,).
        first: Where each state's actions begin, (states,).
        value_loss: How wrong its values are, given the returns (states,).
    """

    logits: Tensor
    features: Tensor
    mask: Tensor
    graph: Tensor
    first: Tensor
    value_loss: Callable[[Tensor], Tensor]


BatchPolicy = Callable[[npt.NDArray[np.int64]], PolicyOutput]
"""A policy over the states of a batch, by their numbers, with gradients."""


def log_softmax(logits: Tensor, mask: Tensor, graph: Tensor, graphs: int) -> Tensor:
    """Log-probabilities of the actions of several states laid end to end, (actions,); a large negative number where masked.

    Args:
        logits: (actions,).
        mask: Which are legal, (actions,).
        graph: State of each action, (actions,).
        graphs: Number of states.
    """
    masked = logits.masked_fill(~mask, -1e9)
    top = scatter(masked.detach(), graph, 0, graphs, "max")
    total = scatter(torch.exp(masked - top[graph]), graph, 0, graphs, "sum")
    return masked - top[graph] - torch.log(total)[graph]


def entropies(log_probs: Tensor, mask: Tensor, graph: Tensor, graphs: int) -> Tensor:
    """Entropy of each state's policy over its legal actions, in nats, (states,)."""
    parts = torch.where(mask, -log_probs.exp() * log_probs, torch.zeros_like(log_probs))
    return scatter(parts, graph, 0, graphs, "sum")


def update(
    policy: BatchPolicy,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    samples: Samples,
    settings: PPO,
    entropy: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Learn from a batch of steps; ``entropy`` is the weight that it has now.

    Returns:
        The metrics that the module's docstring explains.
    """
    network.train()
    sums = dict.fromkeys(METRICS, 0.0)
    count = epochs = 0
    for _ in range(settings.epochs):
        far = 0.0
        order = rng.permutation(len(samples.actions))
        parts = np.array_split(order, max(1, round(len(order) / settings.minibatch)))
        for part in parts:
            now = policy(part)
            device = now.logits.device
            log_probs = log_softmax(now.logits, now.mask, now.graph, len(part))
            chosen = log_probs[now.first + torch.from_numpy(samples.actions[part]).to(device)]
            before, advantage, target = (
                torch.from_numpy(x[part]).float().to(device)
                for x in (samples.log_probs, samples.advantages, samples.returns)
            )
            ratio = torch.exp(chosen - before)
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            value_loss = now.value_loss(target)
            spread = entropies(log_probs, now.mask, now.graph, len(part)).mean()
            loss = policy_loss + settings.value * value_loss - entropy * spread
            if settings.prior_regularisation:
                learned = now.logits - now.features @ now.features.new_tensor(PRIOR)
                loss = loss + settings.prior_regularisation * (learned[now.mask] ** 2).sum() / len(part)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(network.parameters(), settings.gradient)
            optimizer.step()
            with torch.no_grad():
                kl = float((ratio - 1 - torch.log(ratio)).mean())
                outside = float((torch.abs(ratio - 1) > settings.clip).float().mean())
            far += kl / len(parts)
            count += 1
            for name, value in (
                ("policy_loss", policy_loss),
                ("value_loss", value_loss),
                ("entropy", spread),
                ("approx_kl", kl),
                ("clip_fraction", outside),
                ("gradient_norm", norm),
            ):
                sums[name] += float(torch.as_tensor(value).detach())
        epochs += 1
        if far > settings.target_kl:
            break
    metrics = {name: value / max(1, count) for name, value in sums.items()}
    variance = samples.returns.var()
    metrics["explained_variance"] = (
        float(1 - (samples.returns - samples.values).var() / variance) if variance > 0 else 0.0
    )
    metrics["epochs"] = float(epochs)
    return metrics


class PPOLearner:
    """PPO as the training loop sees it (:class:`graphopt.rl.training.train.Learner`)."""

    def __init__(self, controller: Controller, rules: Sequence[Rule], settings: PPO) -> None:
        self.network, self.rules, self.settings = controller, rules, settings
        self._optimizer = torch.optim.Adam(controller.parameters(), lr=settings.learning_rate, eps=1e-5)
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {"agent": self._optimizer}

    def explores(self, iteration: int) -> float:
        """No episode is random: entropy explores."""
        return 0.0

    def remember(self, records: Sequence[Record]) -> None:
        """Keep nothing: a step is learned from once."""

    @property
    def remembered(self) -> Sequence[Record]:
        """No episode is learned from again."""
        return ()

    def learn(self, played: Sequence[Trajectory], rng: np.random.Generator, fraction: float) -> dict[str, float]:
        """See :class:`graphopt.rl.training.train.Learner`."""
        entropy = self.settings.entropy * (1 - 0.95 * fraction)
        observations = [o for t in played for o in t.observations[:-1]]
        policy = self.policy(observations)
        samples = Samples.of(played, self.settings)
        return update(policy, self.network, self._optimizer, samples, self.settings, entropy, rng)

    def policy(self, observations: Sequence[Observation]) -> BatchPolicy:
        """The controller as a policy over some states."""

        def evaluate(part: npt.NDArray[np.int64]) -> PolicyOutput:
            table, batch = self.network.table_of(Batch.of([observations[i] for i in part]), self.rules)
            t = Tensors.of(batch, table.device)
            logits, values = self.network(t, table)
            return PolicyOutput(
                logits,
                t.actions,
                t.mask,
                t.action_graph,
                t.first[:-1],
                lambda returns: nn.functional.huber_loss(values, symlog(returns)),
            )

        return evaluate
