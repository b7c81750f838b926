"""Injected faults at every write, fsync and rename of every verb that writes: `make test-faults`."""
