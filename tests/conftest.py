"""What all tests share: hypothesis tries the same inputs in each run (new ones are for `make soak`), keeps no database,
has no deadline (machines are busy), prints what to replay."""

from hypothesis import settings

settings.register_profile("tracehound", database=None, deadline=None, print_blob=True, derandomize=True)
settings.load_profile("tracehound")
