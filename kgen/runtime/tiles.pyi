"""What `launch.py` expects of the `tiles.py` that is emitted beside its copy."""

DEFAULT_TARGET: str
CORES: dict[str, dict[str, int]]
CAPACITY: dict[str, tuple[int, int, int]]

def block_pointers(target: str) -> bool: ...
def choose(kernel: str, target: str, bits: int, dims: dict[str, int]) -> dict[str, int]: ...
