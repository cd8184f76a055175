"""The paper's experiments, one file each, and the ledger of its statements."""
