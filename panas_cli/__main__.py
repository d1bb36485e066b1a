"""`python -m panas_cli` is `panas`."""

from panas_cli.main import main

main()
