"""`python -m gateway`: the same as the `gridfed` command."""

from gateway.command import main

if __name__ == "__main__":
    main()
