"""Tables of the audit, with published values."""
