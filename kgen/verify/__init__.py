"""Proof: references, the interpreter with Ascend's semantics, test cases and the error metric."""
