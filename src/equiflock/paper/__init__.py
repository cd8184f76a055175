"""Experiments of the paper, one module each, and the ledger of its statements."""
