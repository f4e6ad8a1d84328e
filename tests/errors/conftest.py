"""Calls of generated operators run under Triton's interpreter here, made before anything imports triton."""

from __future__ import annotations

import importlib

importlib.import_module("kgen.verify.interpreter").activate()
