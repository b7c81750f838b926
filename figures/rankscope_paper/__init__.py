"""The paper's figures, theorems and experiments, on top of the library: bounds, theory, experiments, figures."""
