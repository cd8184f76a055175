"""The bound on the generalization gap of trained controllers, and its parts (section 4 of the paper)."""

from equiflock.theory.bound import Bound, generalization_bound, lipschitz_constant
from equiflock.theory.covering import dudley_bound, greedy_cover, log_class_cover, log_matrix_cover, log_score_lipschitz
from equiflock.theory.mlp import MLP, as_mlp
from equiflock.theory.rademacher import (
    Complexity,
    linear_rademacher_complexity,
    rademacher_complexity,
    rademacher_gap_bound,
)

__all__ = [
    "MLP",
    "Bound",
    "Complexity",
    "as_mlp",
    "dudley_bound",
    "generalization_bound",
    "greedy_cover",
    "linear_rademacher_complexity",
    "lipschitz_constant",
    "log_class_cover",
    "log_matrix_cover",
    "log_score_lipschitz",
    "rademacher_complexity",
    "rademacher_gap_bound",
]
