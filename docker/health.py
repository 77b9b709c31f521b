"""Exit code 0 when this container's role answers; what HEALTHCHECK and probes run.

Needs nothing but Python. The role and its port are what the entrypoint noted.
"""

import os
import sys
import urllib.request
from pathlib import Path

PATHS = {"serve": "/healthz", "scheduler": "/health", "worker": "/health"}


def main() -> int:
    """Ask the role how it is."""
    file = Path(os.environ.get("BIGSAP_ROLE_FILE", "/tmp/bigsap-role"))
    try:
        role, port = file.read_text().split()
    except FileNotFoundError:
        sys.stderr.write("no role has been started\n")
        return 1
    # No proxy of the environment: this is the container itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{PATHS[role]}", timeout=4) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        sys.stderr.write(f"{role}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
