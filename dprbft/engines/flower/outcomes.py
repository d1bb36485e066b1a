"""What became of a site that was asked and has not answered: in words, with what to do."""

WHY = {
    "silent": "its node does not answer; start it (panas node)",
    "late": "its node has not answered in time",
    "failed": "its relay has failed; see what it wrote at the site",
    "lost": "Flower did not take the message; see the hub's log, and go on with --resume",
    "large": "its answer is larger than what it was asked allows, and was not taken",
    "malformed": "its answer is none of a relay's",
    # Flower's own codes (`flwr.common.constant.ErrorCode`).
    "error 3": "its connection ended while it sent its answer; see that the site runs",
    "error 4": "its answer came too late; give the sites a longer deadline (hub.toml)",
    "error 5": "its relay has gone, or was ended; start the site again (panas deploy start)",
}
"""What became of a site that has not answered, and what to do."""
BAD = ("large", "malformed")
"""Of these, those that say that the site has sent what is no answer."""


def why(state: str) -> str:
    """What a state of a job means, as the hub's relay or Flower names it."""
    if state.startswith("error ") and state not in WHY:
        return f"Flower did not carry the message (its code {state.removeprefix('error ')})"
    return WHY.get(state, WHY["malformed"])
