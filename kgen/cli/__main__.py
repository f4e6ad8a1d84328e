"""`python -m kgen.cli`."""

from kgen.cli import main

main()
