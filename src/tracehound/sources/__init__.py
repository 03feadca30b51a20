"""Where batches come from besides the kernel: tapes, packet captures."""
