"""What all commands share: options, output, times, exit codes."""
