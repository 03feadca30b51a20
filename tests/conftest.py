"""What all tests share: hypothesis tries the same inputs in each run (new ones are for `make soak`), keeps no database,
has no deadline (machines are busy), prints what to replay. pytest is not told that it is in CI: it would print the
difference of lists of any length, and takes an hour for one of 16,000 members."""

import os

from hypothesis import settings

settings.register_profile("tracehound", database=None, deadline=None, print_blob=True, derandomize=True)
settings.load_profile("tracehound")
for variable in ("CI", "BUILD_NUMBER"):
    os.environ.pop(variable, None)
