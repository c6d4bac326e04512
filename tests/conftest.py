"""Settings of all tests."""

import hypothesis

# Machines that run tests are busy: time says nothing. A failure prints how to repeat it.
hypothesis.settings.register_profile("outcore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("outcore")
