"""The services of conversations, named as in the architecture: each is a fold or a thin adapter over the kernel."""
