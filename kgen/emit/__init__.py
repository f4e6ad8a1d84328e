"""Emission: device-dialect kernels and a spec's signatures to the source of a package."""
