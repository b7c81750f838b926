"""Where work runs: cores, devices, processes, a cluster."""
