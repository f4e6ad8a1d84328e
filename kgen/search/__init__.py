"""Search: plan, emission and the virtual Ascend together. Compiles variants and candidates, and records why rivals
lost."""
