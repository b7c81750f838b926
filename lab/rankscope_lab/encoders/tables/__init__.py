"""Tables of the audit, computed from runs and printed beside the published numbers."""
