"""One thread each, and Triton's interpreter with its bf16 replaced before anything imports triton."""

from __future__ import annotations

import importlib
import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # read when numpy and torch are first imported

importlib.import_module("torch").set_num_threads(1)
importlib.import_module("kgen.verify.interpreter").activate()
