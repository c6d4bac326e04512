"""Settings of all tests."""

import signal

import hypothesis

# Machines that run tests are busy: time says nothing. A failure prints how to repeat it.
hypothesis.settings.register_profile("outcore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("outcore")

# A shell that runs something in the background has it ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
