"""Other libraries' kernels beside ours: their launches, captured from their own host code; nothing runs."""

from kgen.virtual.peers.environment import create_peers, find_peers, peers_check
from kgen.virtual.peers.session import Capture, Captured, CapturedArgument, CapturedLaunch, device_of

__all__ = [
    "Capture",
    "Captured",
    "CapturedArgument",
    "CapturedLaunch",
    "create_peers",
    "device_of",
    "find_peers",
    "peers_check",
]
