"""`%load_ext mase_server.jupyter`: the magic `%mase` of IPython and Jupyter."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Load the extension; `%load_ext` calls this."""
    from mase_server.jupyter.magics import MaseMagics

    shell.register_magics(MaseMagics(shell))


def unload_ipython_extension(shell: Any) -> None:
    """Unload the extension and end the daemon started for cells; `%unload_ext` calls this."""
    from mase_server.jupyter.magics import MaseMagics

    for magics in list(shell.magics_manager.registry.values()):
        if isinstance(magics, MaseMagics):
            magics.close()
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("mase", None)
