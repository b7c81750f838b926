"""Sections of the page, one module each: what they show of a library, or nothing where it holds nothing of theirs."""
