"""``python -m ale``: the command, by the interpreter that has it."""

from ale._cli.main import main

if __name__ == "__main__":
    main()
