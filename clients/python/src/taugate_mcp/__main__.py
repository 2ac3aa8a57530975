"""`python -m taugate_mcp` does the same as `taugate-mcp`."""

from taugate_mcp.command import main

if __name__ == "__main__":
    raise SystemExit(main())
