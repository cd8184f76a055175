"""Why trained controllers generalize: the bound on their generalization gap (section 4 of the paper)."""

from equiflock.theory.bound import Bound, generalization_bound
from equiflock.theory.lipschitz import lipschitz_constant
from equiflock.theory.mlp import MLP, as_mlp

__all__ = ["MLP", "Bound", "as_mlp", "generalization_bound", "lipschitz_constant"]
