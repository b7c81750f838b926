"""Print the keys and types of the JSON document on stdin; of a list its first element."""

import json
import sys


def show(value: object, depth: int = 0) -> None:
    """Print what is in an object, one line for each key."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        print("  " * depth + f"{key}: {describe(inner)}".rstrip())
        first = inner[0] if isinstance(inner, list) and inner else inner
        show(first, depth + 1)


def describe(value: object) -> str:
    """Name the type of a value; a schema is named in full."""
    if isinstance(value, str) and value.startswith("rankscope/"):
        return value
    if isinstance(value, list):
        return f"list of {describe(value[0])}".rstrip() if value else "list"
    names = {dict: "", bool: "true or false", int: "number", float: "number", str: "text", type(None): "null"}
    return names[type(value)]


if __name__ == "__main__":
    show(json.load(sys.stdin))
