"""Structure-aware fuzzing of everything that rankscope reads: `make fuzz SECONDS=600 SEED=1`."""
