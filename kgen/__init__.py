"""kgen: op specs and tile programs in, Triton-Ascend kernels out."""
