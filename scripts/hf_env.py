"""The Python environment that the reference scripts run in.

Bit-equality with the reference holds for pinned versions only. `ensure()` returns at once when the running
interpreter has them; otherwise it makes a virtual environment under build/hf-env and starts the script again in it.
This module uses the standard library only, and must be called before torch is imported.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / "build" / "hf-env"

#: What the scripts need: the first two decide the numbers and must match exactly, the rest need only be there.
PINNED = {"torch": "2.11.0", "transformers": "5.24.0"}
OTHERS = ("numpy", "sentencepiece", "safetensors", "gguf")

_GUARD = "KVDIV_HF_ENV"


def missing() -> list[str]:
    """Returns the requirements that this interpreter does not meet, as pip would write them."""
    wanted = []
    for name, version in PINNED.items():
        if _installed_version(name) != version:
            wanted.append(f"{name}=={version}")
    wanted += [name for name in OTHERS if _installed_version(name) is None]
    return wanted


def ensure() -> None:
    """Continues only in an interpreter that has the pinned packages; starts the script again in one if need be."""
    lacking = missing()
    if not lacking:
        return
    if os.environ.get(_GUARD):
        sys.exit(f"{VENV} lacks {', '.join(lacking)}; remove the folder and run again")
    python = VENV / "bin" / "python"
    if not python.exists():
        _say(f"making {VENV.relative_to(ROOT)} with {', '.join(lacking)}; this takes minutes and some GB")
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if _probe(python) != 0:
        requirements = [f"{name}=={version}" for name, version in PINNED.items()] + list(OTHERS)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True, stdout=sys.stderr)
    os.environ[_GUARD] = "1"
    os.execv(python, [str(python), *sys.argv])


def find_model(name: str) -> Path:
    """A directory with config.json, a model shipped in data/models, or one that scripts/get_smollm2 made."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (Path(name), ROOT / "data" / "models" / name, cache / "kvdiv" / "models" / name):
        if (folder / "config.json").is_file():
            return folder.resolve()
    _say(f"no model {name}: no directory with config.json, nor in data/models or {cache / 'kvdiv' / 'models'}")
    sys.exit(3)


def process_environment(n_threads: int) -> dict[str, str]:
    """What both programs are started with: the thread count, and threads that sleep while they wait.

    None of it changes a result but MKL_CBWR, which makes FP32 products independent of how weights are aligned.
    """
    threads = {name: str(n_threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    defaults = {"MKL_CBWR": "AVX2,STRICT", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**defaults, **os.environ, **threads}


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _probe(python: Path) -> int:
    """Exit status 0 when that interpreter has everything."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import hf_env; sys.exit(bool(hf_env.missing()))"
    return subprocess.run([str(python), "-c", code], check=False).returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
