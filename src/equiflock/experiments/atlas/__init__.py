"""Atlas of classical laws: their claims, measured, and a film of each law."""
