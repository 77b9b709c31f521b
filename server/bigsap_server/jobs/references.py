"""References in a job's spec: uploaded arrays, and the job that it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bigsap_server.problems import pointer_to

#: Pointer to the job that a spec starts from.
START = "/warm_start/job"


def references(spec: dict[str, Any]) -> dict[str, str]:
    """Return the ids that a normalised spec names, each with the JSON pointer to (one of) its places."""
    found = {array: pointer_to(*path) for path, array in _arrays(spec, ())}
    start = (spec.get("warm_start") or {}).get("job")
    return found if start is None else found | {start: START}


def _arrays(value: Any, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], str]]:
    if isinstance(value, dict):
        if isinstance(value.get("array"), str):
            yield path, value["array"]
        for name, part in value.items():
            # Parameters of plugins are not references of the service.
            if not (name == "params" and value.get("type") == "plugin"):
                yield from _arrays(part, (*path, name))
    # Lists of inline numbers contain no references and may be long.
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for k, part in enumerate(value):
            yield from _arrays(part, (*path, k))
