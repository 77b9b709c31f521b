"""The table of settings in docs/operator.md, from the server: ``python docs/settings_table.py``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bigsap_server.settings import Limits, Settings

PAGE = Path(__file__).parent / "operator.md"
BEGIN, END = "<!-- settings: written by docs/settings_table.py -->", "<!-- end of settings -->"


def default_text(value: Any) -> str:
    """``none`` for what is off or computed, sizes in words, the rest as TOML would have it."""
    if value is None or value in ({}, [], ""):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value >> 30} GiB" if value % (1 << 30) == 0 else f"{value >> 20} MiB"
    if isinstance(value, (int, float)):
        return f"{value:,.10g}"
    return f"`{json.dumps(value) if isinstance(value, list) else value}`"


def table() -> str:
    """One line a setting: environment variable, place in the file, default, meaning."""
    lines = ["| variable | in the file | default | meaning |", "| --- | --- | --- | --- |"]
    places = [("", "", Settings), ("LIMITS__", "limits.", Limits)]
    for prefix, place, model in places:
        for name, field in model.model_fields.items():
            if name == "limits":
                continue
            default = field.get_default(call_default_factory=True)
            shown = f"`{default}`" if name == "port" else default_text(default)
            lines.append(
                f"| `BIGSAP_{prefix}{name.upper()}` | `{place}{name}` | {shown} | {field.description} |"
            )
    return "\n".join(lines)


def written(text: str) -> str:
    """The page with its table renewed."""
    pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    return re.sub(pattern, lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", text, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
