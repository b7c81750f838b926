"""The rank paper's theorems checked numerically, on instances and on checkpoints, and its experiments (App. F)."""
