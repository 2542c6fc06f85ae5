"""`python -m torchlens` is the command `torchlens`."""

from torchlens.cli import main

if __name__ == "__main__":
    main()
