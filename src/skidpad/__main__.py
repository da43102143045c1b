"""`python -m skidpad` is the command line."""

from skidpad.cli import main

main()
