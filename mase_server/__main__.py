"""`python -m mase_server` is `mase-server`."""

from mase_server.cli.main import main

if __name__ == "__main__":
    main()
