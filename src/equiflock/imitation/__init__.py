"""Learning to fly from an expert: DAgger (sections 2.4 and 5 of the paper, "Training")."""

from equiflock.imitation.dagger import DAgger, Trainer, train

__all__ = ["DAgger", "Trainer", "train"]
