"""Run a client's code again, on neighbours and with noise that is recorded, frozen or probed."""
