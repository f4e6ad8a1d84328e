"""How long `kgen build` takes: median of five fresh processes with a warm file cache, from the recorded plan and
unchanged.

    python benchmarks/build_time.py [SPEC]

Exits 1 when a median misses its limit (2 s and 0.5 s), or when a build imports sympy, torch or triton.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"from the recorded plan": 2.0, "unchanged": 0.5}
HEAVY = ("sympy", "torch", "triton")
PROBE = (
    "import sys; sys.argv = ['kgen', *sys.argv[1:]]\n"
    "from kgen.cli import main\n"
    "try: main()\n"
    f"finally: print('IMPORTED', *[m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
)


def run(arguments: list[str], environment: dict[str, str]) -> tuple[float, list[str]]:
    """Seconds that one fresh process took, and which heavy modules it imported."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"kgen {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    heavy = next(line for line in done.stderr.splitlines() if line.startswith("IMPORTED")).split()[1:]
    return seconds, heavy


def main() -> int:
    """Prints both medians."""
    spec = sys.argv[1] if len(sys.argv) > 1 else "specs/gdn.yaml"
    name = Path(spec).stem
    ok = True
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        environment = {**os.environ, "KGEN_HOME": f"{folder}/home"}
        arguments = ["build", spec, "--out", str(out)]
        seconds: dict[str, list[float]] = {label: [] for label in LIMITS}
        heavy: set[str] = set()
        for label, times in seconds.items():
            for turn in range(6):  # the first warms the file cache and isn't counted
                if label == "from the recorded plan":
                    shutil.rmtree(out, ignore_errors=True)
                    shutil.rmtree(f"{folder}/home", ignore_errors=True)
                    out.mkdir()
                    shutil.copy(ROOT / "generated" / name / "plan.json", out)
                took, imported = run(arguments, environment)
                heavy |= set(imported)
                times += [took] if turn else []
    for label, times in seconds.items():
        median = statistics.median(times)
        ok &= median < LIMITS[label]
        print(f"kgen build {spec}, {label}: {median:.2f} s (median of {len(times)}, limit {LIMITS[label]} s)")
    print(f"imported: {', '.join(sorted(heavy)) or 'none'} of {', '.join(HEAVY)}")
    return 0 if ok and not heavy else 1


if __name__ == "__main__":
    sys.exit(main())
