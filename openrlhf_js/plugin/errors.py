"""What ends a run: what the user gave, what is installed, or a reward that nobody computed."""


class BadInput(ValueError):
    """What the user gave cannot be run. One problem per line: what came, what to do."""


class UpstreamMismatch(RuntimeError):
    """The installed OpenRLHF lacks something that the plug-in relies on."""


class BadReward(ValueError):
    """A response came back without a reward that can be trained on."""
