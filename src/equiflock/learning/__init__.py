"""DAgger (sections 2.4 and 5 of the paper, "Training"), fast-forward cloning (section 4), gradients through flights.

`recipe` holds the settings, `loss` the loss, `dagger`, `rollout_training` and `cloning` train, `training_run` keeps a
resumable training in a run directory, and `parallel_training` runs several at once.
"""
