"""The atlas of laws: what each promises, measured, and a film of it."""
