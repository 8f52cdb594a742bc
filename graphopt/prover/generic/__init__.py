"""Proof of rules for tensors of any size, at given ranks and attributes: see :mod:`graphopt.prover.generic.prover`."""

from graphopt.prover.generic.prover import GenericProof, prove_generic

__all__ = ["GenericProof", "prove_generic"]
