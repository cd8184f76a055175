"""Imitation of an expert: DAgger (sections 2.4 and 5 of the paper, "Training") and fast-forward cloning (section 4).

`recipe` has the settings, `dagger` trains, `run` keeps a training in a folder and `several` runs many at once.
"""
