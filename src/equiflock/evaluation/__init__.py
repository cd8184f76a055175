"""Evaluation of controllers: against baselines, over grids of settings, and by speed."""
