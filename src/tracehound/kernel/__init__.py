"""The kernel side as seen from user space: objects, links, rings, programs, features; every privileged act."""
