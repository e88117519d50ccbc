"""`python -P -m mase_server` is `mase-server`; without -P, Python looks for it in the current folder first."""

from mase_server.cli.main import main

if __name__ == "__main__":
    main()
