"""Stand-ins for `hivmc`, the closed last step of the compiler, which only CANN has.

`bishengir-compile` ends by calling `hivmc` (`hivmc-a5` for the 950 family) on a file with the final HIVM IR. A tiny
shell script of that name, first on the PATH of the compiler alone, answers the version question and keeps that file.
"""

from __future__ import annotations

from pathlib import Path

# The compiler reads the version to choose between argument forms of older and newer `hivmc`.
HIVMC_VERSION = "1.2.0"
NAMES = ("hivmc", "hivmc-a5")
KEEP_VARIABLE = "KGEN_FINAL_IR"  # where the script copies the final IR to

_SCRIPT = f"""#!/bin/sh
if [ "$1" = --version ]; then echo "hivmc {HIVMC_VERSION}"; exit 0; fi
for argument in "$@"; do
  case "$argument" in
    -*) ;;
    *.mlir) if [ -f "$argument" ]; then cp -- "$argument" "${KEEP_VARIABLE}" || exit 3; exit 0; fi ;;
  esac
done
echo "no .mlir file among the arguments: $*" >&2
exit 4
"""


def write_stand_ins(folder: Path) -> Path:
    """Write the scripts into `folder`, which must exist, and return it."""
    for name in NAMES:
        script = folder / name
        script.write_text(_SCRIPT, encoding="utf-8")
        script.chmod(0o755)
    return folder
