"""What all tests share: hypothesis keeps no database, has no deadline (machines are busy), prints what to replay."""

from hypothesis import settings

settings.register_profile("tracehound", database=None, deadline=None, print_blob=True)
settings.load_profile("tracehound")
