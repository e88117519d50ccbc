"""The real server process over stdio, with a fake daemon behind it: STATE_FOLDER [--trust] [--follow=QUIET_SECONDS]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from fake_daemon import FakeDaemon, FollowingDaemon

from mase_server.lsp.process import serve_editor

if __name__ == "__main__":
    follow = next((each.partition("=")[2] for each in sys.argv if each.startswith("--follow=")), None)
    serve_editor(
        daemon=FakeDaemon if follow is None else FollowingDaemon,
        state_dir=Path(sys.argv[1]),
        cache_dir=Path(sys.argv[1]),
        trusted="--trust" in sys.argv,
        quiet=float(follow or 0),
    )
