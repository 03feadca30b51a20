"""Where batches come from besides the kernel."""
