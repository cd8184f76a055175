"""Learned controllers: their architecture, compiled form, torch modules and weights."""
