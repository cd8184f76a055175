"""Learning to fly from an expert: DAgger (sections 2.4 and 5 of the paper, "Training").

`recipe` says what to do, `dagger` does it, `run` keeps it in a folder and `several` does many at once.
"""
