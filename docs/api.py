"""Build the API reference from the docstrings: ``python docs/api.py [--out DIR]``."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".build") / "api")
    chosen = parser.parse_args()
    # What pdoc cannot resolve it tells by a warning.
    warnings.simplefilter("error")
    import pdoc
    import pdoc.render

    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc("bigsap", "bigsap.client", output_directory=chosen.out)
    print(f"wrote {chosen.out / 'index.html'}")


if __name__ == "__main__":
    main()
