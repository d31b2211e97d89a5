"""The Python environment that make_stats_golden.py runs in: pinned packages under build/stats-env.

`ensure()` must be called before numpy is imported. This module uses the standard library only.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "stats-env"

#: statsmodels brings pandas along, and this one does not work with pandas 3.
PINNED = {"numpy": "2.2.6", "scipy": "1.15.3", "statsmodels": "0.14.4", "pandas": "2.2.3"}

_GUARD = "KVDIV_STATS_ENV"


def ensure() -> None:
    """Continues only in an interpreter that has the pinned packages; starts the script again in one if need be."""
    if all(_installed_version(name) == version for name, version in PINNED.items()):
        return
    requirements = [f"{name}=={version}" for name, version in PINNED.items()]
    if os.environ.get(_GUARD):
        sys.exit(f"{VENV} lacks one of {', '.join(requirements)}; remove the folder and run again")
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True, stdout=sys.stderr)
    os.environ[_GUARD] = "1"
    os.execv(python, [str(python), *sys.argv])


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
