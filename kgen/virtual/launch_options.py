"""Launch options of Triton-Ascend as options of the compiler, as its backend passes them (from 3.2.0 on).

A kernel's launch may carry options such as `multibuffer=False` or `unit_flag=True`. What isn't listed here never
reaches `bishengir-compile`.
"""

from __future__ import annotations

from collections.abc import Mapping

FLAGS: Mapping[str, str] = {
    "multibuffer": "--enable-auto-multi-buffer",
    "enable_auto_bind_sub_block": "--enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "--enable-hivm-auto-cv-balance",
    "sync_solver": "--enable-hivm-graph-sync-solver",
    "unit_flag": "--enable-hivm-unit-flag-sync",
    "inject_barrier_all": "--enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "--enable-hivm-inject-block-all-sync",
    "limit_auto_multi_buffer_only_for_local_buffer": "--limit-auto-multi-buffer-only-for-local-buffer",
    "set_workspace_multibuffer": "--set-workspace-multibuffer",
    "tile_mix_vector_loop": "--tile-mix-vector-loop",
    "tile_mix_cube_loop": "--tile-mix-cube-loop",
    "limit_auto_multi_buffer_of_local_buffer": "--limit-auto-multi-buffer-of-local-buffer",
    "disable_auto_inject_block_sync": "--disable-auto-inject-block-sync",
    "enable_ubuf_saving": "--enable-ubuf-saving",  # later than 3.2.0; this compiler has it
}


def compiler_flags(options: Mapping[str, object]) -> tuple[str, ...]:
    """The compiler's options for a launch's, in the order of the table."""
    return tuple(
        f"{flag}={options[name]}" for name, flag in FLAGS.items() if name in options and options[name] is not None
    )
