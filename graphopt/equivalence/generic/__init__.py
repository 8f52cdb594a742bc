"""Proof of rules for tensors of any size, at given ranks and attributes: see :mod:`graphopt.equivalence.generic.prover`."""

from graphopt.equivalence.generic.prover import GenericProof, prove_generic

__all__ = ["GenericProof", "prove_generic"]
