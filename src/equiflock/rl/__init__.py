"""Reinforcement learning: many flocks as arrays, rewards by name, and the interfaces of PettingZoo and TorchRL."""
