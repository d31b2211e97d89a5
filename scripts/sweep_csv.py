#!/usr/bin/env python3
"""Result directories of `kvdiv run` as one CSV on stdout: a row per condition, empty cells where a value is null."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

#: Column and its path in a condition of report.json.
COLUMNS = {
    "dtype": "dtype",
    "backend": "backend",
    "strategy": "strategy",
    "n_prompts": "n_prompts",
    "n_pairs": "n_pairs",
    "n_steps": "same_prefix.n_steps",
    "flips": "same_prefix.flips",
    "tie_flips": "same_prefix.tie_flips",
    "divergence_rate": "divergence_rate",
    "bit_equal_rate": "same_prefix.bit_equal_rate",
    "kl_on_off_nats_mean": "same_prefix.kl_on_off_nats.mean",
    "kl_on_off_nats_ci_low": "same_prefix.kl_on_off_nats.ci_low",
    "kl_on_off_nats_ci_high": "same_prefix.kl_on_off_nats.ci_high",
    "kl_on_off_nats_max": "same_prefix.kl_on_off_nats.max",
    "js_nats_mean": "same_prefix.js_nats.mean",
    "max_abs_dlogit": "same_prefix.max_abs_dlogit.max",
    "free_running_kl_on_off_nats_mean": "free_running.kl_on_off_nats.mean",
    "after_flip_kl_on_off_nats_mean": "after_flip.kl_on_off_nats.mean",
    "accuracy_on": "accuracy.on",
    "accuracy_off": "accuracy.off",
}


def at_path(value: Any, path: str) -> Any:
    """The member at a dotted path, or None."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", *COLUMNS, "verdict", "directory"])
    for directory in sys.argv[1:]:
        report = json.loads((Path(directory) / "report.json").read_text(encoding="utf-8"))
        for condition in report["conditions"]:
            cells = [at_path(condition, path) for path in COLUMNS.values()]
            writer.writerow([report["model"]["name"], *cells, at_path(report, "verdict.kind"), directory])


if __name__ == "__main__":
    main()
